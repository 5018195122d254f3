#include "ops/linear.h"

#include <numeric>

#include <ATen/ops/addmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/sum.h>

#include "base/error.h"
#include "ops/graph.h"

namespace automodel::ops {
namespace {

std::int64_t rows_of(const Parameters& weights) {
  return std::accumulate(weights.begin(), weights.end(), std::int64_t{0},
                         [](std::int64_t sum, const Parameter* w) { return sum + w->shape[0]; });
}

/// x [n, in] times all weights' transposes.
at::Tensor forward(const at::Tensor& x, const Parameters& weights) {
  if (const auto whole = joined_value(weights); whole.defined()) return at::mm(x, whole.t());
  auto y = at::empty({x.size(0), rows_of(weights)}, x.options());
  std::int64_t column = 0;
  for (const auto* weight : weights) {
    auto part = y.narrow(1, column, weight->shape[0]);
    at::mm_out(part, x, weight->value.t());
    column += weight->shape[0];
  }
  return y;
}

/// gradient [n, sum out] times all weights.
at::Tensor input_gradient(const at::Tensor& gradient, const Parameters& weights) {
  if (const auto whole = joined_value(weights); whole.defined()) return at::mm(gradient, whole);
  at::Tensor dx;
  std::int64_t column = 0;
  for (const auto* weight : weights) {
    const auto part = gradient.narrow(1, column, weight->shape[0]);
    if (dx.defined())
      at::addmm_out(dx, dx, part, weight->value);
    else
      dx = at::mm(part, weight->value);
    column += weight->shape[0];
  }
  return dx;
}

void add_biases(at::Tensor& y, const Parameters& weights, const Parameters& biases) {
  std::int64_t column = 0;
  for (std::size_t i = 0; i < biases.size(); ++i) {
    const auto rows = weights[i]->shape[0];
    if (biases[i] != nullptr) y.narrow(1, column, rows).add_(biases[i]->value);
    column += rows;
  }
}

class LinearBackward : public Backward {
 public:
  LinearBackward(at::Tensor x, at::ScalarType input_type, std::vector<std::int64_t> input_shape, Parameters weights,
                 Parameters biases)
      : x_(std::move(x)),
        input_type_(input_type),
        input_shape_(std::move(input_shape)),
        weights_(std::move(weights)),
        biases_(std::move(biases)) {}

  std::vector<at::Tensor> backward(std::vector<at::Tensor> gradients, const std::vector<bool>& needed) override {
    if (!gradients[0].defined()) return {at::Tensor()};
    const auto gradient = gradients[0].reshape({x_.size(0), -1});
    at::Tensor dx;
    if (needed[0]) dx = input_gradient(gradient, weights_).view(input_shape_).to(input_type_);
    std::int64_t column = 0;
    for (std::size_t i = 0; i < biases_.size(); ++i) {
      const auto rows = weights_[i]->shape[0];
      if (biases_[i] != nullptr && biases_[i]->trained())
        accumulate(*biases_[i], gradient.narrow(1, column, rows).sum(0));
      column += rows;
    }
    weight_gradient(weights_, gradient, x_);
    return {dx};
  }
  const char* name() const override { return "linear"; }

 private:
  at::Tensor x_;
  at::ScalarType input_type_;
  std::vector<std::int64_t> input_shape_;
  Parameters weights_, biases_;
};

class TransposedBackward : public Backward {
 public:
  TransposedBackward(at::Tensor x, std::vector<std::int64_t> shape, Parameter& weight, Parameter* bias)
      : x_(std::move(x)), shape_(std::move(shape)), weight_(weight), bias_(bias) {}
  std::vector<at::Tensor> backward(std::vector<at::Tensor> gradients, const std::vector<bool>& needed) override {
    if (!gradients[0].defined()) return {at::Tensor()};
    const auto gradient = gradients[0].reshape({x_.size(0), -1});
    at::Tensor dx;
    if (needed[0]) dx = at::mm(gradient, weight_.value.t()).view(shape_);
    if (bias_ != nullptr && bias_->trained()) accumulate(*bias_, gradient.sum(0));
    weight_gradient({&weight_}, x_, gradient);
    return {dx};
  }
  const char* name() const override { return "linear_transposed"; }

 private:
  at::Tensor x_;
  std::vector<std::int64_t> shape_;
  Parameter& weight_;
  Parameter* bias_;
};

}  // namespace

at::Tensor linear_transposed(const at::Tensor& x, Parameter& weight, Parameter* bias) {
  at::Tensor flat, y;
  auto shape = x.sizes().vec();
  {
    NoGraph guard;
    flat = x.detach().reshape({-1, x.size(-1)});
    y = bias != nullptr ? at::addmm(bias->value, flat, weight.value) : at::mm(flat, weight.value);
    auto out_shape = shape;
    out_shape.back() = y.size(1);
    y = y.view(out_shape);
  }
  if (records({x})) record({y}, {x}, std::make_unique<TransposedBackward>(flat, std::move(shape), weight, bias));
  return y;
}

at::Tensor linear(const at::Tensor& x, const Parameters& weights, const Parameters& biases) {
  AUTOMODEL_CHECK(!weights.empty() && weights.front()->value.defined(), "a linear layer needs its weights here");
  at::Tensor flat, y;
  auto shape = x.sizes().vec();
  {
    NoGraph guard;
    flat = x.detach().reshape({-1, x.size(-1)}).to(weights.front()->value.scalar_type());
    y = forward(flat, weights);
    if (!biases.empty()) add_biases(y, weights, biases);
    auto out_shape = shape;
    out_shape.back() = y.size(1);
    y = y.view(out_shape);
  }
  if (records({x}))
    record({y}, {x}, std::make_unique<LinearBackward>(flat, x.scalar_type(), std::move(shape), weights, biases));
  return y;
}

}  // namespace automodel::ops
