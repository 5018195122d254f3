#include "ops/grouped_linear.h"

#include <numeric>
#include <optional>

#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>

#include "base/error.h"
#include "ops/graph.h"

namespace automodel::ops {
namespace {

using Rows = std::vector<std::int64_t>;

/// Calls visit(group, first row, rows) for every group that has rows.
template <class Visit>
void for_groups(const Rows& rows, Visit&& visit) {
  std::int64_t first = 0;
  for (std::size_t g = 0; g < rows.size(); ++g) {
    if (rows[g] > 0) visit(static_cast<std::int64_t>(g), first, rows[g]);
    first += rows[g];
  }
}

/// out = x weight, the product in `type` where one is given.
void stacked_product(at::Tensor out, const at::Tensor& x, const at::Tensor& weight,
                     const std::optional<at::ScalarType>& type) {
  if (type && *type != x.scalar_type())
    out.copy_(at::mm(x.to(*type), weight.to(*type)));
  else
    at::mm_out(out, x, weight);
}

/// The stacked weight of a group as [in, out].
at::Tensor weight_of(const GroupedLinear& layer, std::int64_t group) {
  const auto weight = layer.stacked->value.select(0, group);
  return layer.upright ? weight.t() : weight;
}

at::Tensor forward(const at::Tensor& x, const GroupedLinear& layer, const Rows& rows) {
  auto y = at::empty({x.size(0), layer.outputs()}, x.options());
  for_groups(rows, [&](std::int64_t group, std::int64_t first, std::int64_t count) {
    auto out = y.narrow(0, first, count);
    const auto in = x.narrow(0, first, count);
    if (layer.stacked != nullptr) {
      stacked_product(out, in, weight_of(layer, group), layer.stacked->product_type);
      if (layer.bias != nullptr) out.add_(layer.bias->value.select(0, group));
    } else {
      const auto& linear = layer.each[static_cast<std::size_t>(group)];
      product_into(out, in, linear);
      add_biases(out, linear);
    }
  });
  return y;
}

at::Tensor for_backward(const at::Tensor& x, const GroupedLinear& layer) {
  if (layer.stacked == nullptr) return kept_input(x, layer.each.front());
  return kept_input(x, Linear{.weights = {layer.stacked}});
}

class GroupedLinearBackward : public Backward {
 public:
  GroupedLinearBackward(at::Tensor x, at::ScalarType input_type, const GroupedLinear& layer, Rows rows)
      : x_(std::move(x)), input_type_(input_type), layer_(layer), rows_(std::move(rows)) {}

  std::vector<at::Tensor> backward(std::vector<at::Tensor> gradients, const std::vector<bool>& needed) override {
    if (!gradients[0].defined()) return {at::Tensor()};
    NoGraph guard;
    const auto gradient = gradients[0].contiguous();
    at::Tensor dx;
    if (needed[0]) dx = at::empty(x_.sizes(), gradient.options());
    for_groups(rows_, [&](std::int64_t group, std::int64_t first, std::int64_t count) {
      const auto part = gradient.narrow(0, first, count);
      if (dx.defined()) {
        auto out = dx.narrow(0, first, count);
        if (layer_.stacked != nullptr)
          stacked_product(out, part, weight_of(layer_, group).t(), layer_.stacked->product_type);
        else
          out.copy_(input_gradient(part, layer_.each[static_cast<std::size_t>(group)]));
      }
      if (layer_.stacked == nullptr) {
        const auto& linear = layer_.each[static_cast<std::size_t>(group)];
        bias_gradients(part, linear);
        ops::weight_gradients(part, x_.narrow(0, first, count), linear);
      }
    });
    if (layer_.stacked != nullptr) {
      if (layer_.bias != nullptr) accumulate_group_sums(*layer_.bias, gradient, rows_);
      if (layer_.upright)
        stacked_weight_gradient(*layer_.stacked, gradient, x_, rows_);
      else
        stacked_weight_gradient(*layer_.stacked, x_, gradient, rows_);
    }
    if (dx.defined()) dx = dx.to(input_type_);
    return {dx};
  }
  void visit_saved(const std::function<void(at::Tensor&)>& visit) override { visit(x_); }
  const char* name() const override { return "grouped_linear"; }

 private:
  at::Tensor x_;
  at::ScalarType input_type_;
  GroupedLinear layer_;
  Rows rows_;
};

}  // namespace

std::int64_t GroupedLinear::groups() const {
  return stacked != nullptr ? stacked->shape[0] : static_cast<std::int64_t>(each.size());
}

std::int64_t GroupedLinear::outputs() const {
  return stacked != nullptr ? stacked->shape[upright ? 1 : 2] : each.front().outputs();
}

at::Tensor grouped_linear(const at::Tensor& x, const GroupedLinear& layer, std::span<const std::int64_t> rows) {
  AUTOMODEL_CHECK(static_cast<std::int64_t>(rows.size()) == layer.groups(), "rows are given for every group");
  AUTOMODEL_CHECK(std::accumulate(rows.begin(), rows.end(), std::int64_t{0}) == x.size(0),
                  "groups do not make up the rows");
  const Rows kept(rows.begin(), rows.end());
  at::Tensor input, y;
  {
    NoGraph guard;
    const auto& any = layer.stacked != nullptr ? *layer.stacked : *layer.each.front().weights.front();
    AUTOMODEL_CHECK(any.value.defined(), "experts need their weights here");
    input = x.detach().to(any.value.scalar_type()).contiguous();
    y = forward(input, layer, kept);
  }
  if (records({x}))
    record({y}, {x}, std::make_unique<GroupedLinearBackward>(for_backward(input, layer), x.scalar_type(), layer, kept));
  return y;
}

}  // namespace automodel::ops
