// y = x W^T + b for one or several weights that share their input.
#pragma once

#include <ATen/core/Tensor.h>

#include "ops/parameter.h"

namespace automodel::ops {

/// x [..., in]; weights [out_i, in]; biases empty or one for each weight (null: none) [out_i]. Returns [..., sum out_i]
/// in the weights' type. The weight gradient is computed by the backward pass or, where a WeightGradients queue is
/// current, put there.
at::Tensor linear(const at::Tensor& x, const Parameters& weights, const Parameters& biases = {});

/// y = x W + b for a weight that is stored transposed, [in, out] (GPT-2's Conv1D).
at::Tensor linear_transposed(const at::Tensor& x, Parameter& weight, Parameter* bias);

}  // namespace automodel::ops
