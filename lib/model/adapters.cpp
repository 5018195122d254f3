#include "arch/adapters.h"

#include "model/blocks.h"

namespace automodel::model {
namespace {

/// The ranges of dimension `dim` of the whole matrix that are on this rank.
std::vector<std::pair<std::int64_t, std::int64_t>> ranges_of(const Weight& weight, std::size_t dim) {
  if (!weight.slice.whole() && weight.slice.dim == static_cast<int>(dim)) return weight.slice.ranges;
  return {{0, weight.full[dim]}};
}

}  // namespace

void adapt(const Weights& weights, const arch::AdapterSpec* adapters, ops::Linear& layer) {
  if (adapters == nullptr) return;
  const auto& spec = *adapters;
  std::vector<ops::LowRank> terms;
  bool any = false;
  for (const auto* weight : layer.weights) {
    auto* a = weights.find(arch::adapter_matrix(weight->name, 'A'));
    auto* b = weights.find(arch::adapter_matrix(weight->name, 'B'));
    auto& term = terms.emplace_back();
    if (a == nullptr) continue;
    any = true;
    term = {.a = &a->parameter, .b = &b->parameter, .scale = spec.scale(a->expert)};
    if (spec.magnitudes) term.magnitude = weights.parameter(arch::adapter_magnitudes(weight->name));
    if (spec.dropout == 0 || a->expert) continue;  // NeMo AutoModel applies no dropout to experts' adapters
    term.dropout = spec.dropout;
    term.dropout_first = spec.dropout_first;
    const auto& side = spec.dropout_first ? *a : *b;
    const std::size_t dim = spec.dropout_first ? 1 : 0;
    term.features = ranges_of(side, dim);
    term.width = side.full[dim];
  }
  if (any) layer.adapters = std::move(terms);
}

ops::Linear drawn(const ops::Linear& layer, const Microbatch& microbatch) {
  auto out = layer;
  if (!layer.adapters.empty()) out.draw = microbatch.draw;
  return out;
}

}  // namespace automodel::model
