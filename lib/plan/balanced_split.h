// Assigns layers to stages by cost.
#pragma once

#include <vector>

#include "plan/fqn_split.h"

namespace automodel::plan {

/// Seconds per microbatch, forward and backward.
struct SplitCost {
  std::vector<double> layers = {};
  double first = 0;  ///< what the first stage computes besides layers: the embedding
  double last = 0;   ///< the same for the last stage: norm and head
};

/// Consecutive layers for each stage, at least one, such that the most expensive stage is as cheap as possible. Ties
/// are broken by the least sum of squares, then by giving more layers to later stages, since earlier ones hold more
/// microbatches. `most`, if given, limits the layers of each stage. Empty if there are too few layers or the limits
/// cannot be met.
std::vector<LayerRange> balanced_layers(int stages, const SplitCost& cost, const std::vector<int>& most = {});

}  // namespace automodel::plan
