// Activation checkpointing: a part of the model keeps only its inputs and is recomputed in the backward pass (Chen et
// al. 2016).
#pragma once

#include <functional>
#include <vector>

#include <ATen/core/Tensor.h>

namespace automodel::ops {

using Computation = std::function<std::vector<at::Tensor>(const std::vector<at::Tensor>&)>;

/// Runs `compute` on `inputs` without a graph; the backward pass runs it again with one. Both runs must give the same
/// result.
std::vector<at::Tensor> checkpoint(const Computation& compute, const std::vector<at::Tensor>& inputs);

}  // namespace automodel::ops
