#include "ops/linear.h"

#include <algorithm>
#include <optional>

#include <ATen/ops/addmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/sum.h>

#include "base/error.h"
#include "ops/graph.h"
#include "ops/host_matmul.h"

namespace automodel::ops {
namespace {

/// The weight as a matrix [out, in].
at::Tensor upright(const Parameter& weight, bool transposed) {
  const auto value = weight.dense();
  return transposed ? value.t() : value;
}

/// All weights as one matrix [out, in]; undefined unless they are adjacent in memory.
at::Tensor whole_weight(const Linear& layer) {
  return layer.transposed ? upright(*layer.weights.front(), true) : joined_value(layer.weights);
}

std::int64_t outputs_of(const Parameter& weight, bool transposed) {
  return weight.shape[transposed ? 1 : 0];
}

/// Calls run(weight, first column, columns) for each weight and its columns of the result.
template <class Run>
void for_each_weight(const Linear& layer, Run&& run) {
  std::int64_t column = 0;
  for (const auto* weight : layer.weights) {
    const auto columns = outputs_of(*weight, layer.transposed);
    run(*weight, column, columns);
    column += columns;
  }
}

/// If every weight needs a GEMM of its own (autocast or 8-bit operands): the type of the GEMMs that are not 8-bit.
std::optional<at::ScalarType> apart_in(const Linear& layer, at::ScalarType type) {
  const auto asked = layer.weights.front()->matmul_type;
  const bool float8 = std::any_of(layer.weights.begin(), layer.weights.end(),
                                  [](const Parameter* weight) { return weight->float8.has_value(); });
  return asked || float8 ? std::optional(asked.value_or(type)) : std::nullopt;
}

void plain_product_into(at::Tensor out, const at::Tensor& x, const at::Tensor& weight) {
  if (!host_matmul_with_weight(out, x, weight)) at::mm_out(out, x, weight);
}

void base_product_into(at::Tensor out, const at::Tensor& x, const Linear& layer) {
  if (const auto type = apart_in(layer, x.scalar_type())) {
    at::Tensor low;                     // x in that type
    std::optional<Float8Matrix> eight;  // x in 8 bits; both are converted once for all weights
    for_each_weight(layer, [&](const Parameter& weight, std::int64_t column, std::int64_t columns) {
      const auto part = out.narrow(1, column, columns);
      if (weight.float8) {
        if (!eight) eight = float8_input(x, *weight.float8);
        return float8_result(part, *eight, weight.value, weight.float8_forms.get(), *weight.float8);
      }
      if (!low.defined()) low = x.to(*type);
      const auto right = upright(weight, layer.transposed).to(*type).t();
      if (out.scalar_type() == *type) return plain_product_into(part, low, right);
      part.copy_(at::mm(low, right));
    });
    return;
  }
  if (const auto whole = whole_weight(layer); whole.defined()) {
    plain_product_into(out, x, whole.t());
    return;
  }
  for_each_weight(layer, [&](const Parameter& weight, std::int64_t column, std::int64_t columns) {
    auto part = out.narrow(1, column, columns);
    plain_product_into(part, x, weight.value.t());
  });
}

at::Tensor plain_input_gradient(const at::Tensor& gradient, const at::Tensor& weight) {
  auto dx = at::empty({gradient.size(0), weight.size(1)}, gradient.options());
  plain_product_into(dx, gradient, weight);
  return dx;
}

at::Tensor base_input_gradient(const at::Tensor& gradient, const Linear& layer) {
  at::Tensor dx;
  if (const auto type = apart_in(layer, gradient.scalar_type())) {
    for_each_weight(layer, [&](const Parameter& weight, std::int64_t column, std::int64_t columns) {
      const auto mine = gradient.narrow(1, column, columns);
      const auto part =
          weight.float8
              ? float8_input_gradient(mine, weight.value, weight.float8_forms.get(), *weight.float8)
              : at::mm(mine.to(*type), upright(weight, layer.transposed).to(*type)).to(gradient.scalar_type());
      dx = dx.defined() ? dx.add_(part) : part;
    });
    return dx;
  }
  if (const auto whole = whole_weight(layer); whole.defined()) return plain_input_gradient(gradient, whole);
  for_each_weight(layer, [&](const Parameter& weight, std::int64_t column, std::int64_t columns) {
    const auto part = gradient.narrow(1, column, columns);
    if (dx.defined())
      at::addmm_out(dx, dx, part, weight.value);
    else
      dx = plain_input_gradient(part, weight.value);
  });
  return dx;
}

template <class Rule>
bool any_of_parameters(const Linear& layer, Rule&& rule) {
  return std::any_of(layer.weights.begin(), layer.weights.end(), rule) ||
         std::any_of(layer.adapters.begin(), layer.adapters.end(), [&](const LowRank& term) {
           return term && (rule(term.a) || rule(term.b) || (term.magnitude != nullptr && rule(term.magnitude)));
         });
}

class LinearBackward : public Backward {
 public:
  LinearBackward(at::Tensor x, at::ScalarType input_type, std::vector<std::int64_t> input_shape, const Linear& layer)
      : x_(std::move(x)), input_type_(input_type), input_shape_(std::move(input_shape)), layer_(layer) {}

  std::vector<at::Tensor> backward(std::vector<at::Tensor> gradients, const std::vector<bool>& needed) override {
    if (!gradients[0].defined()) return {at::Tensor()};
    NoGraph guard;
    const auto gradient = gradients[0].reshape({x_.size(0), layer_.outputs()});  // not -1: there may be no rows
    at::Tensor dx, low;
    if (needed[0]) dx = input_gradient(gradient, layer_, &low).view(input_shape_).to(input_type_);
    bias_gradients(gradient, layer_);
    weight_gradients(gradient, x_, layer_, low);
    return {dx};
  }
  void visit_saved(const std::function<void(at::Tensor&)>& visit) override { visit(x_); }
  const char* name() const override { return "linear"; }

 private:
  at::Tensor x_;
  at::ScalarType input_type_;
  std::vector<std::int64_t> input_shape_;
  Linear layer_;
};

}  // namespace

std::int64_t Linear::outputs() const {
  std::int64_t sum = 0;
  for (const auto* weight : weights) sum += outputs_of(*weight, transposed);
  return sum;
}

at::Tensor product(const at::Tensor& x, const Linear& layer) {
  auto y = at::empty({x.size(0), layer.outputs()}, x.options());
  product_into(y, x, layer);
  return y;
}

void product_into(at::Tensor out, const at::Tensor& x, const Linear& layer) {
  base_product_into(out, x, layer);
  add_low_rank(out, x, layer);
}

at::Tensor input_gradient(const at::Tensor& gradient, const Linear& layer, at::Tensor* low) {
  auto dx = base_input_gradient(base_gradient(gradient, layer), layer);
  const auto lowered = lowered_gradient(gradient, layer);
  add_low_rank_input_gradient(dx, gradient, lowered, layer);
  if (low != nullptr) *low = lowered;
  return dx;
}

void add_biases(at::Tensor y, const Linear& layer) {
  std::int64_t column = 0;
  for (std::size_t i = 0; i < layer.biases.size(); ++i) {
    const auto columns = outputs_of(*layer.weights[i], layer.transposed);
    if (layer.biases[i] != nullptr) y.narrow(1, column, columns).add_(layer.biases[i]->value);
    column += columns;
  }
}

void bias_gradients(const at::Tensor& gradient, const Linear& layer) {
  std::int64_t column = 0;
  for (std::size_t i = 0; i < layer.biases.size(); ++i) {
    const auto columns = outputs_of(*layer.weights[i], layer.transposed);
    if (layer.biases[i] != nullptr && layer.biases[i]->trained())
      accumulate(*layer.biases[i], gradient.narrow(1, column, columns).sum(0));
    column += columns;
  }
}

void weight_gradients(const at::Tensor& gradient, const at::Tensor& x, const Linear& layer, const at::Tensor& low) {
  if (layer.transposed)
    weight_gradient(layer.weights, x, gradient);
  else
    weight_gradient(layer.weights, gradient, x);
  low_rank_gradients(gradient, low, x, layer);
}

bool any_trained(const Linear& layer) {
  return any_of_parameters(layer, [](const Parameter* w) { return w->trained(); });
}

at::Tensor kept_input(const at::Tensor& x, const Linear& layer) {
  if (any_of_parameters(layer, [](const Parameter* w) { return !w->frozen; })) return x;
  return at::empty({1}, x.options()).expand(x.sizes());
}

at::Tensor linear(const at::Tensor& x, const Linear& layer) {
  if (has_magnitudes(layer) && !has_lengths(layer)) return linear(x, with_lengths(layer));
  AUTOMODEL_CHECK(!layer.weights.empty() && layer.weights.front()->here(), "a linear layer needs its weights here");
  AUTOMODEL_CHECK(!layer.transposed || layer.weights.size() == 1, "transposed weights do not share a product");
  at::Tensor flat, y;
  auto shape = x.sizes().vec();
  {
    NoGraph guard;
    flat = x.detach().reshape({-1, x.size(-1)}).to(layer.weights.front()->type());
    y = product(flat, layer);
    add_biases(y, layer);
    auto out_shape = shape;
    out_shape.back() = y.size(1);
    y = y.view(out_shape);
  }
  if (records({x}))
    record({y}, {x},
           std::make_unique<LinearBackward>(kept_input(flat, layer), x.scalar_type(), std::move(shape), layer));
  return y;
}

at::Tensor linear(const at::Tensor& x, const Parameters& weights, const Parameters& biases) {
  return linear(x, Linear{.weights = weights, .biases = biases});
}

}  // namespace automodel::ops
