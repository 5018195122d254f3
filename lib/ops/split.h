// Simple operations whose gradients ATen would compute with unnecessary memory traffic.
#pragma once

#include <functional>
#include <vector>

#include <ATen/core/Tensor.h>

#include "ops/parameter.h"

namespace automodel::ops {

/// Splits x along its last dimension into parts of `sizes`; the parts are views of x.
std::vector<at::Tensor> split(const at::Tensor& x, const std::vector<std::int64_t>& sizes);

/// x + bias (over the last dimension).
at::Tensor add_bias(const at::Tensor& x, Parameter& bias);

/// Identity; in the backward pass `before` runs when the gradients arrive, before they are passed on.
std::vector<at::Tensor> tap(const std::vector<at::Tensor>& values, std::function<void()> before);

}  // namespace automodel::ops
