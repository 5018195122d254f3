// The loss over a validation set.
#pragma once

#include <cstdint>

#include "data/loader.h"
#include "train/runtime.h"

namespace automodel::train {

struct Evaluation {
  double loss = 0;  ///< mean over all label tokens of the set
  std::int64_t label_tokens = 0;
};

/// One pass over the set, without side effects on the model. Collective.
Evaluation evaluate(Runtime& runtime, const data::Loader& loader);

}  // namespace automodel::train
