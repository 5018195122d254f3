#include "ops/low_rank.h"

#include <span>
#include <string>

#include <ATen/TensorOperators.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/zeros.h>

#include "base/error.h"
#include "base/random.h"
#include "ops/linear.h"

namespace automodel::ops {
namespace {

/// 0 where dropout leaves out, 1 / (1 - share) else: [rows, columns].
at::Tensor mask_of(const LowRank& term, const DropoutDraw& draw, std::int64_t columns,
                   const at::TensorOptions& options) {
  const RandomStream stream(draw.seed, "dropout/" + std::to_string(draw.step) + "/" + term.a->name);
  const auto rows = static_cast<std::int64_t>(draw.tokens.size());
  auto mask = at::zeros({rows, columns}, at::kFloat);
  auto* out = mask.mutable_data_ptr<float>();
  const auto share = static_cast<float>(term.dropout), kept = static_cast<float>(1 / (1 - term.dropout));
  for (std::int64_t row = 0; row < rows; ++row) {
    auto* to = out + row * columns;
    const auto begin = draw.tokens[static_cast<std::size_t>(row)] * term.width;
    for (const auto& [first, last] : term.features) {
      const std::span values(to, static_cast<std::size_t>(last - first));
      stream.fill_uniform(static_cast<std::uint64_t>(begin + first), values);
      for (auto& value : values) value = value >= share ? kept : 0.0F;
      to += last - first;
    }
  }
  return mask.to(options);
}

/// True where dropout acts at the place `first` in this pass.
bool drops(const LowRank& term, const Linear& layer, bool first) {
  return layer.draw && term.dropout > 0 && term.dropout_first == first;
}

/// x [n, columns] with dropout at the place `first`.
at::Tensor dropped(const at::Tensor& x, const LowRank& term, const Linear& layer, bool first) {
  if (!drops(term, layer, first)) return x;
  AUTOMODEL_CHECK(static_cast<std::int64_t>(layer.draw->tokens.size()) == x.size(0), "dropout is drawn for other rows");
  return x * mask_of(term, *layer.draw, x.size(1), x.options());
}

/// A product in the type that the parameter asks for; the result has the type of x.
at::Tensor times(const at::Tensor& x, const Parameter& weight, bool transposed) {
  const auto type = weight.product_type.value_or(weight.value.scalar_type());
  const auto w = weight.value.to(type);
  return at::mm(x.to(type), transposed ? w.t() : w).to(x.scalar_type());
}

/// scale A x [n, rank].
at::Tensor lowered(const at::Tensor& x, const LowRank& term, const Linear& layer) {
  return times(dropped(x, term, layer, true), *term.a, true).mul_(term.scale);
}

/// Calls use(term, first column, columns) for every weight that has an adapter.
template <class Use>
void for_each_term(const Linear& layer, Use&& use) {
  std::int64_t column = 0;
  for (std::size_t i = 0; i < layer.adapters.size(); ++i) {
    const auto columns = layer.weights[i]->shape[layer.transposed ? 1 : 0];
    if (layer.adapters[i]) use(layer.adapters[i], column, columns);
    column += columns;
  }
}

}  // namespace

void add_low_rank(at::Tensor y, const at::Tensor& x, const Linear& layer) {
  for_each_term(layer, [&](const LowRank& term, std::int64_t column, std::int64_t columns) {
    const auto low = lowered(x, term, layer);
    auto part = y.narrow(1, column, columns);
    if (!term.b->product_type && !drops(term, layer, false))
      at::addmm_out(part, part, low, term.b->value.t());
    else
      part.add_(dropped(times(low, *term.b, true), term, layer, false));
  });
}

void add_low_rank_input_gradient(at::Tensor dx, const at::Tensor& gradient, const Linear& layer) {
  for_each_term(layer, [&](const LowRank& term, std::int64_t column, std::int64_t columns) {
    const auto arriving = dropped(gradient.narrow(1, column, columns), term, layer, false);
    const auto low = times(arriving, *term.b, false).mul_(term.scale);
    if (!term.a->product_type && !drops(term, layer, true))
      at::addmm_out(dx, dx, low, term.a->value);
    else
      dx.add_(dropped(times(low, *term.a, false), term, layer, true));
  });
}

void low_rank_gradients(const at::Tensor& gradient, const at::Tensor& x, const Linear& layer) {
  for_each_term(layer, [&](const LowRank& term, std::int64_t column, std::int64_t columns) {
    if (!term.a->trained() && !term.b->trained()) return;
    const auto arriving = dropped(gradient.narrow(1, column, columns), term, layer, false);
    weight_gradient({term.b}, arriving, lowered(x, term, layer));
    weight_gradient({term.a}, times(arriving, *term.b, false).mul_(term.scale), dropped(x, term, layer, true));
  });
}

}  // namespace automodel::ops
