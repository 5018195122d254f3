#include "ops/grouped_linear.h"

#include <algorithm>
#include <numeric>
#include <optional>

#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/cumsum.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/searchsorted.h>

#include "base/error.h"
#include "ops/graph.h"
#include "ops/grouped_product.h"
#include "ops/host_matmul.h"

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

/// out = x weight, multiplied in `type` if given.
void stacked_product(at::Tensor out, const at::Tensor& x, const at::Tensor& weight,
                     const std::optional<at::ScalarType>& type) {
  if (type && *type != x.scalar_type())
    out.copy_(at::mm(x.to(*type), weight.to(*type)));
  else if (!host_matmul_with_weight(out, x, weight))
    at::mm_out(out, x, weight);
}

at::Tensor forward(const at::Tensor& x, const GroupedLinear& layer, const Rows& rows) {
  auto y = at::empty({x.size(0), layer.outputs()}, x.options());
  for_groups(rows, [&](std::int64_t group, std::int64_t first, std::int64_t count) {
    auto out = y.narrow(0, first, count);
    const auto in = x.narrow(0, first, count);
    if (layer.stacked != nullptr) {
      stacked_product(out, in, layer.stacked->value.select(0, group), layer.stacked->matmul_type);
      if (layer.bias != nullptr) out.add_(layer.bias->value.select(0, group));
    } else {
      const auto& linear = layer.each[static_cast<std::size_t>(group)];
      product_into(out, in, linear);
      add_biases(out, linear);
    }
  });
  return y;
}

/// All weights, ordered by group; a stack is one parameter.
Parameters parameters_of(const GroupedLinear& layer) {
  if (layer.stacked != nullptr) return {layer.stacked};
  Parameters out;
  for (const auto& linear : layer.each) out.insert(out.end(), linear.weights.begin(), linear.weights.end());
  return out;
}

/// The weights as views [groups, out, in], whose results are to be concatenated; empty if memory layout does not allow
/// such views.
std::vector<at::Tensor> weights_of_groups(const GroupedLinear& layer) {
  if (layer.stacked != nullptr) return {layer.stacked->value.transpose(1, 2)};
  std::vector<at::Tensor> values;
  for (const auto* parameter : parameters_of(layer)) values.push_back(parameter->value);
  return joined_groups(values, layer.groups());
}

/// x as the device's grouped GEMM can read it: contiguous and aligned.
at::Tensor contiguous_aligned(const at::Tensor& x) {
  const auto out = x.contiguous();
  return is_readable_in_place(out) ? out : out.clone(at::MemoryFormat::Contiguous);
}

/// The group of each of the n rows.
at::Tensor group_of_rows(const at::Tensor& ends, std::int64_t n) {
  return at::searchsorted(ends, at::arange(n, ends.options()), /*out_int32=*/true, /*right=*/true);
}

at::Tensor forward_on_device(const at::Tensor& x, const GroupedLinear& layer, const at::Tensor& ends) {
  if (x.size(0) == 0) return at::empty({0, layer.outputs()}, x.options());
  std::vector<at::Tensor> parts;
  for (const auto& weight : weights_of_groups(layer))
    parts.push_back(grouped_product(x)(x, weight.transpose(1, 2), ends));
  auto y = parts.size() == 1 ? parts.front() : at::cat(parts, 1);
  if (layer.bias != nullptr) y.add_(layer.bias->value.index_select(0, group_of_rows(ends, x.size(0))));
  return y;
}

at::Tensor input_gradient_on_device(const at::Tensor& gradient, const GroupedLinear& layer, const at::Tensor& ends) {
  if (gradient.size(0) == 0) return at::empty({0, weights_of_groups(layer).front().size(2)}, gradient.options());
  at::Tensor dx;
  std::int64_t column = 0;
  for (const auto& weight : weights_of_groups(layer)) {
    const auto part = grouped_product(gradient)(gradient.narrow(1, column, weight.size(1)), weight, ends);
    dx = dx.defined() ? dx.add_(part) : part;
    column += weight.size(1);
  }
  return dx;
}

at::Tensor for_backward(const at::Tensor& x, const GroupedLinear& layer) {
  if (layer.stacked == nullptr) return kept_input(x, layer.each.front());
  return kept_input(x, Linear{.weights = {layer.stacked}});
}

class DeviceGroupsBackward : public Backward {
 public:
  DeviceGroupsBackward(at::Tensor x, at::ScalarType input_type, const GroupedLinear& layer, at::Tensor ends)
      : x_(std::move(x)), input_type_(input_type), layer_(layer), ends_(std::move(ends)) {}

  std::vector<at::Tensor> backward(std::vector<at::Tensor> gradients, const std::vector<bool>& needed) override {
    if (!gradients[0].defined()) return {at::Tensor()};
    NoGraph guard;
    const auto gradient = contiguous_aligned(gradients[0]);
    at::Tensor dx;
    if (needed[0]) dx = input_gradient_on_device(gradient, layer_, ends_).to(input_type_);
    if (layer_.bias != nullptr) accumulate_group_sums(*layer_.bias, gradient, ends_);
    const bool inputs_first = layer_.stacked != nullptr;
    group_weight_gradients(parameters_of(layer_), inputs_first ? x_ : gradient, inputs_first ? gradient : x_, ends_);
    return {dx};
  }
  void visit_saved(const std::function<void(at::Tensor&)>& visit) override { visit(x_); }
  const char* name() const override { return "grouped_linear"; }

 private:
  at::Tensor x_;
  at::ScalarType input_type_;
  GroupedLinear layer_;
  at::Tensor ends_;
};

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
      at::Tensor low;
      if (dx.defined()) {
        auto out = dx.narrow(0, first, count);
        if (layer_.stacked != nullptr)
          stacked_product(out, part, layer_.stacked->value.select(0, group).t(), layer_.stacked->matmul_type);
        else
          out.copy_(input_gradient(part, layer_.each[static_cast<std::size_t>(group)], &low));
      }
      if (layer_.stacked == nullptr) {
        const auto& linear = layer_.each[static_cast<std::size_t>(group)];
        bias_gradients(part, linear);
        ops::weight_gradients(part, x_.narrow(0, first, count), linear, low);
      }
    });
    if (layer_.stacked != nullptr) {
      if (layer_.bias != nullptr) accumulate_group_sums(*layer_.bias, gradient, rows_);
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
  return stacked != nullptr ? stacked->shape[2] : each.front().outputs();
}

GroupRows rows_on_device(const at::Tensor& counts) {
  const NoGraph guard;
  return {.ends = at::cumsum(counts, 0, at::kInt)};
}

bool needs_counts(const GroupedLinear& layer) {
  const auto plain = [](const Linear& linear) {
    return linear.biases.empty() && linear.adapters.empty() && !linear.transposed;
  };
  const auto as_stored = [](const Parameter* weight) {
    return weight->value.defined() && !weight->float8 && !weight->fused_accumulation &&
           weight->matmul_type.value_or(weight->value.scalar_type()) == weight->value.scalar_type();
  };
  const auto weights = parameters_of(layer);
  if (!takes_groups(layer.groups()) || !std::all_of(layer.each.begin(), layer.each.end(), plain) ||
      !std::all_of(weights.begin(), weights.end(), as_stored) || grouped_product(weights.front()->value) == nullptr)
    return true;
  const auto stacks = weights_of_groups(layer);
  constexpr std::int64_t kPack = 8;
  return stacks.empty() || !std::all_of(stacks.begin(), stacks.end(), [](const at::Tensor& stack) {
           return is_readable_in_place(stack) && stack.size(1) % kPack == 0 && stack.size(2) % kPack == 0;
         });
}

at::Tensor grouped_linear(const at::Tensor& x, const GroupedLinear& layer, const GroupRows& rows) {
  const bool on_device = rows.ends.defined();
  const auto& kept = rows.counts;
  AUTOMODEL_CHECK((on_device ? rows.ends.size(0) : static_cast<std::int64_t>(kept.size())) == layer.groups(),
                  "rows are given for every group");
  AUTOMODEL_CHECK(on_device || std::accumulate(kept.begin(), kept.end(), std::int64_t{0}) == x.size(0),
                  "groups do not make up the rows");
  at::Tensor input, y;
  {
    NoGraph guard;
    const auto& any = layer.stacked != nullptr ? *layer.stacked : *layer.each.front().weights.front();
    AUTOMODEL_CHECK(any.value.defined(), "experts need their weights here");
    input = x.detach().to(any.value.scalar_type()).contiguous();
    if (on_device) input = contiguous_aligned(input);
    y = on_device ? forward_on_device(input, layer, rows.ends) : forward(input, layer, kept);
  }
  if (records({x}) && on_device)
    record({y}, {x},
           std::make_unique<DeviceGroupsBackward>(for_backward(input, layer), x.scalar_type(), layer, rows.ends));
  else if (records({x}))
    record({y}, {x}, std::make_unique<GroupedLinearBackward>(for_backward(input, layer), x.scalar_type(), layer, kept));
  return y;
}

}  // namespace automodel::ops
