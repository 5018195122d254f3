// Norms over the last dimension.
#pragma once

#include <cstdint>
#include <functional>
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

/// (x - mean) / deviation * (offset + weight) + bias; without a weight or a bias where these are null. `offset` is 1 in
/// Nemotron.
at::Tensor layer_norm(const at::Tensor& x, Parameter* weight, Parameter* bias, double eps, double offset = 0);
/// sum = x + delta and its layer_norm. Returns {sum, norm}.
std::pair<at::Tensor, at::Tensor> add_layer_norm(const at::Tensor& x, const at::Tensor& delta, Parameter* weight,
                                                 Parameter* bias, double eps, double offset = 0);

/// The sum of a tensor over the ranks that have parts of one row each; in place.
using SumRows = std::function<void(at::Tensor)>;
/// rms_norm of rows that several ranks have parts of: x and weight are those here, `width` is of the whole rows. `sum`
/// adds up [rows, 1], in the forward and in the backward pass.
at::Tensor rms_norm_of_parts(const at::Tensor& x, Parameter& weight, std::int64_t width, double eps, double offset,
                             const SumRows& sum);

/// x * weight, the weight's dimensions being x's last ones; `weight` [heads, width] of x [..., heads, width].
at::Tensor scaled_by(const at::Tensor& x, Parameter& weight);

}  // namespace automodel::ops
