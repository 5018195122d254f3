// Activations of the feed-forward block.
#pragma once

#include <ATen/core/Tensor.h>

#include "ops/kernels/kernels.h"

namespace automodel::ops {

/// act(gate) * up, where x [..., 2 * width] holds gate and then up in every row. Returns [..., width].
at::Tensor gated(const at::Tensor& x, Gate gate);

/// act(x), without a gate.
at::Tensor activate(const at::Tensor& x, Gate gate);

}  // namespace automodel::ops
