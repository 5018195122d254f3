// The files beside the weights of a saved model that belong to the model as it was trained: tokenizer, chat template.
#pragma once

#include "checkpoint/saver.h"
#include "train/setup.h"

namespace automodel::train {

/// Adds them to `request`, under model/: the tokenizer's files from where the training data's tokenizer is (of the
/// model where the data has ids already, none for `bytes`), the recipe's chat template, the model's
/// generation_config.json.
void add_companions(checkpoint::SaveRequest& request, const Setup& setup);

}  // namespace automodel::train
