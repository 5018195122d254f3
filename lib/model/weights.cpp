#include "model/weights.h"

#include <algorithm>

#include "base/error.h"

namespace automodel::model {
namespace {

std::string unit_name(const arch::Parameter& info, bool whole_stage) {
  if (whole_stage && info.layer >= 0) return info.role == arch::Role::kAdapter ? "adapters of layers" : "layers";
  if (info.role == arch::Role::kAdapter && info.in_tower()) return "adapters of the vision tower";
  if (info.role == arch::Role::kAdapter)
    return info.layer >= 0 ? "adapters of layer " + std::to_string(info.layer) : "adapters of the head";
  if (info.layer >= 0) return "layer " + std::to_string(info.layer);
  if (info.role == arch::Role::kPositions) return "positions";
  if (info.role == arch::Role::kTower) return "vision tower";
  if (info.role == arch::Role::kLayerInputs) return "layer inputs";
  if (info.role == arch::Role::kEmbedding) return "embedding";
  return info.tied_to.empty() ? "head" : "tied head";
}

}  // namespace

Weights::Weights(const std::vector<arch::Parameter>& list, const PlacementRule& rule, bool whole_stage) {
  for (const auto& info : list) {
    const Placement placement = rule(info);
    if (!placement.present) continue;
    auto weight = std::make_unique<Weight>();
    weight->info = info;
    weight->full.assign(info.shape.begin(), info.shape.end());
    weight->slice = placement.slice;
    weight->trained = placement.trained && info.trained();
    weight->expert = info.is_expert();
    weight->tensor_sharded = placement.tensor_sharded;
    weight->tensor_partial = placement.tensor_partial;
    weight->tensor_replicas = placement.tensor_replicas;
    weight->copy = !info.tied_to.empty();
    weight->parameter.name = info.fqn;
    weight->parameter.role = info.role;
    weight->parameter.part = info.part;
    weight->parameter.frozen = !weight->trained;
    weight->parameter.shape = weight->slice.shape(weight->full);
    // Frozen weights form units of their own: only units with trained weights have gradients.
    const std::string name = unit_name(info, whole_stage) + (info.frozen ? ", frozen" : "");
    const auto unit = std::find_if(units_.begin(), units_.end(),
                                   [&](const Unit& u) { return u.name == name && u.expert == weight->expert; });
    weight->unit = static_cast<int>(unit - units_.begin());
    if (unit == units_.end()) units_.push_back({name, {}, weight->expert});
    units_[static_cast<std::size_t>(weight->unit)].weights.push_back(weight.get());
    index_[info.fqn] = weight.get();
    weights_.push_back(std::move(weight));
  }
  for (auto& unit : units_)
    std::stable_partition(unit.weights.begin(), unit.weights.end(), [](const Weight* w) { return w->full.size() > 1; });
}

bool Unit::trained() const {
  return std::any_of(weights.begin(), weights.end(), [](const Weight* weight) { return weight->trained; });
}

Weight* Weights::find(std::string_view fqn) const {
  const auto found = index_.find(std::string(fqn));
  return found == index_.end() ? nullptr : found->second;
}

ops::Parameter* Weights::parameter(std::string_view fqn) const {
  auto* weight = find(fqn);
  return weight == nullptr ? nullptr : &weight->parameter;
}

std::vector<int> Weights::units_of(const std::function<bool(const Weight&)>& such) const {
  std::vector<int> out;
  for (const auto& weight : weights_)
    if (such(*weight) && std::find(out.begin(), out.end(), weight->unit) == out.end()) out.push_back(weight->unit);
  return out;
}

std::int64_t Weights::elements() const {
  std::int64_t total = 0;
  for (const auto& weight : weights_) total += weight->parameter.numel();
  return total;
}

Weight whole_weight(const arch::Parameter& info) {
  Weight out{.info = info, .full = {info.shape.begin(), info.shape.end()}};
  out.parameter.shape = out.full;
  return out;
}

void Weights::set_matmul_type(at::ScalarType type) {
  for (const auto& weight : weights_)
    if (weight->info.role != arch::Role::kEmbedding && weight->parameter.shape.size() >= 2)
      weight->parameter.matmul_type = type;
}

}  // namespace automodel::model
