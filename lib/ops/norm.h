// Norms over the last dimension.
#pragma once

#include <utility>

#include <ATen/core/Tensor.h>

#include "ops/parameter.h"

namespace automodel::ops {

/// x / rms(x) * (offset + weight) over the last dimension; computed in float32 or better. `offset` is 1 in Gemma.
/// x [..., width], weight [width].
at::Tensor rms_norm(const at::Tensor& x, Parameter& weight, double eps, double offset = 0);

/// sum = x + delta and its rms_norm, in one pass. Returns {sum, norm}.
std::pair<at::Tensor, at::Tensor> add_rms_norm(const at::Tensor& x, const at::Tensor& delta, Parameter& weight,
                                               double eps, double offset = 0);

/// (x - mean) / deviation * weight + bias.
at::Tensor layer_norm(const at::Tensor& x, Parameter& weight, Parameter& bias, double eps);

}  // namespace automodel::ops
