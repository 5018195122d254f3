// The loss over a validation set.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "data/loader.h"
#include "train/runtime.h"

namespace automodel::train {

struct Evaluation {
  double loss = 0;  ///< mean over all label tokens of the set
  std::int64_t label_tokens = 0;
  std::optional<double> accuracy = {};               ///< of a classifier
  std::optional<double> ce_loss = {}, kd_loss = {};  ///< of a student
};

/// One pass over the set, without side effects on the model. `stops` is asked before each batch and ends the pass,
/// whose result is then empty; it must answer the same on all ranks. `tell`, if any, hears how many global batches of
/// how many are done. Collective.
std::optional<Evaluation> evaluate(
    Runtime& runtime, const data::Loader& loader, const std::function<bool()>& stops = [] { return false; },
    const std::function<void(std::int64_t done, std::int64_t all)>& tell = {});

}  // namespace automodel::train
