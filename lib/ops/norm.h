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

/// (x - mean) / deviation * (offset + weight) + bias; null: no weight or no bias. `offset` is 1 in Nemotron.
at::Tensor layer_norm(const at::Tensor& x, Parameter* weight, Parameter* bias, double eps, double offset = 0);
/// sum = x + delta and its layer_norm. Returns {sum, norm}.
std::pair<at::Tensor, at::Tensor> add_layer_norm(const at::Tensor& x, const at::Tensor& delta, Parameter* weight,
                                                 Parameter* bias, double eps, double offset = 0);

/// In-place all-reduce (sum) of a tensor over the ranks that hold parts of the same rows.
using SumRows = std::function<void(at::Tensor)>;
/// rms_norm of rows that are split across ranks: x and weight are this rank's columns, `width` is that of whole rows.
/// `sum` reduces [rows, 1], once in the forward and once in the backward pass.
at::Tensor rms_norm_of_parts(const at::Tensor& x, Parameter& weight, std::int64_t width, double eps, double offset,
                             const SumRows& sum);

/// x * weight, broadcast over x's leading dimensions: e.g. weight [heads, width] for x [..., heads, width].
at::Tensor scaled_by(const at::Tensor& x, Parameter& weight);

}  // namespace automodel::ops
