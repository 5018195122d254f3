// An operation against the same thing written with ATen's own operations and autograd: values and gradients.
#pragma once

#include <functional>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/randn.h>

#include "ops/graph.h"
#include "ops/parameter.h"
#include "torch_catch.h"

namespace automodel::ops {

inline const std::vector<at::ScalarType> kTypes = {at::kDouble, at::kFloat};

inline double tolerance(at::ScalarType type) {
  return type == at::kDouble ? 1e-12 : type == at::kFloat ? 2e-5 : 3e-2;
}

inline double distance(const at::Tensor& a, const at::Tensor& b) {
  REQUIRE(a.sizes() == b.sizes());
  const auto scale = std::max(1.0, b.to(at::kDouble).abs().max().item<double>());
  return (a.to(at::kDouble) - b.to(at::kDouble)).abs().max().item<double>() / scale;
}

inline Parameter make(const std::vector<std::int64_t>& shape, at::ScalarType type) {
  Parameter p{.name = "p", .shape = shape, .value = at::randn(shape, at::TensorOptions().dtype(type)) * 0.3};
  p.grad = at::randn(shape, at::TensorOptions().dtype(type));  // garbage: a fresh gradient must not be read
  return p;
}
inline at::Tensor input(const std::vector<std::int64_t>& shape, at::ScalarType type) {
  return leaf(at::randn(shape, at::TensorOptions().dtype(type)));
}

/// Runs `ours` and `reference` from equal leaves, with the same gradient of the result, and compares everything.
/// The reference gets the parameters' values as leaves, and 16-bit types as float32.
inline void compare(
    at::ScalarType type, const std::vector<at::Tensor>& inputs, const std::vector<Parameter*>& parameters,
    const std::function<at::Tensor()>& ours,
    const std::function<at::Tensor(const std::vector<at::Tensor>&, const std::vector<at::Tensor>&)>& reference) {
  std::vector<at::Tensor> other_inputs, values;
  const auto wide = at::isReducedFloatingType(type) ? at::kFloat : type;
  for (const auto& x : inputs) other_inputs.push_back(leaf(x.detach().to(wide, false, true)));
  for (const auto* p : parameters) values.push_back(leaf(p->value.to(wide, false, true)));
  const auto y = ours();
  const auto expected = reference(other_inputs, values);
  CHECK(distance(y.detach(), expected.detach()) < tolerance(type));
  const auto gradient = at::randn(y.sizes(), y.options());
  run_backward(Origin(y), gradient);
  run_backward(Origin(expected), gradient.to(expected.scalar_type()));
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    INFO("input " << i);
    CHECK(distance(inputs[i].grad(), other_inputs[i].grad()) < tolerance(type));
  }
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    INFO("parameter " << i);
    CHECK(distance(parameters[i]->grad, values[i].grad()) < tolerance(type));
  }
}

}  // namespace automodel::ops
