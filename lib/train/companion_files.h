// Files that accompany the weights of a saved model: tokenizer, chat template.
#pragma once

#include "checkpoint/saver.h"
#include "train/setup.h"

namespace automodel::train {

/// Adds them to `request`, under model/: the files of the tokenizer that the training data used (the model's own if the
/// data is already tokenized, none for `bytes`), the recipe's chat template, and the model's generation_config.json.
void add_companions(checkpoint::SaveRequest& request, const Setup& setup);

}  // namespace automodel::train
