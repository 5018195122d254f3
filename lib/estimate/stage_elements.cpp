#include "estimate/stage_elements.h"

#include <algorithm>
#include <map>

#include "arch/counts.h"
#include "plan/model_names.h"

namespace automodel::estimate {
namespace {

/// Adds a unit whose elements are gathered together: a layer, or an end of the model.
void add_unit(StageElements& out, double dense, double expert = 0) {
  out.dense += dense;
  out.expert += expert;
  out.largest_unit = std::max(out.largest_unit, dense + expert);
  out.largest_dense = std::max(out.largest_dense, dense);
  out.largest_expert = std::max(out.largest_expert, expert);
}

void add_adapters(const plan::TrainingPlan& plan, const plan::StagePart& part, StageElements& out) {
  std::map<std::pair<int, bool>, double> units;  // those of a tower are a unit, as those of the head
  for (const auto& info : plan.adapters->all) {
    if (!part.has_adapter(info)) continue;
    const double here = info.is_expert() ? static_cast<double>(info.shape.elements()) / plan.mesh.sizes().ep
                                         : static_cast<double>(info.shape.elements()) / plan::tensor_ranks(plan, info);
    units[{info.layer, info.in_tower()}] += here;
    (info.is_expert() ? out.trained_expert : out.trained_dense) += here;
    if (arch::is_hidden_matrix(info)) (info.is_expert() ? out.expert_matrices : out.dense_matrices) += here;
  }
  for (const auto& [unit, elements] : units) out.largest_trained = std::max(out.largest_trained, elements);
  out.dense += out.trained_dense;
  out.expert += out.trained_expert;
}

/// Quantised weights of a layer.
struct Packed {
  double saved = 0, largest = 0;
};

std::map<int, Packed> packed_weights(const plan::TrainingPlan& plan, const plan::StagePart& part) {
  std::map<int, Packed> out;
  if (!plan.adapters || !plan.adapters->spec.base) return out;
  constexpr double kBlock = 64, kScale = 32, kSmallScale = 8, kOfScales = 32.0 / 256;  // bits
  const auto& base = *plan.adapters->spec.base;
  const double type = 8.0 * size_of(plan.types.compute);
  for (const auto& info : plan.adapters->all) {
    if (info.bits == 0 || std::find(part.layers.begin(), part.layers.end(), info.layer) == part.layers.end()) continue;
    const auto elements = static_cast<double>(info.shape.elements()) / plan::tensor_ranks(plan, info);
    const double scale = base.bits == 8 ? kScale / static_cast<double>(info.shape[1])
                                        : (base.small_scales ? kSmallScale + kOfScales : kScale) / kBlock;
    auto& layer = out[info.layer];
    layer.saved += elements * (1 - (base.bits + scale) / type);
    layer.largest = std::max(layer.largest, elements);
  }
  return out;
}

void leave_out_frozen(const plan::TrainingPlan& plan, const plan::StagePart& part, StageElements& out) {
  const auto frozen = plan::frozen_elements(plan, part);
  const double expert_ranks = plan.mesh.sizes().ep * plan.expert_tensor;
  out.trained_dense -= frozen.dense;
  out.trained_expert -= frozen.expert;
  out.dense_matrices -= frozen.dense_matrices;
  out.expert_matrices -= frozen.expert_matrices;
  double largest = 0, ends = out.trained();
  for (const int layer : part.layers) {
    const auto& shares = plan.shares.layer(layer);
    const double trained = shares.dense + shares.expert / expert_ranks - frozen.layers[static_cast<std::size_t>(layer)];
    largest = std::max(largest, trained);
    ends -= trained;
  }
  out.largest_trained = std::max(largest, std::min(ends, out.largest_unit));
}

double float8_elements(const plan::TrainingPlan& plan, const plan::Float8Plan& float8, const plan::StagePart& part) {
  double out = 0;
  const auto& model = *plan.model;
  for (const auto& info : plan::all_parameters(plan)) {
    if (part.has(info) && plan::takes_float8(float8, info, {info.shape.begin(), info.shape.end()}))
      out += static_cast<double>(info.shape.elements()) / plan::tensor_ranks(plan, info);
  }
  if (part.has_head && plan::takes_float8(float8, model.layout.head, {model.spec.outputs(), model.spec.hidden}))
    out += plan.shares.head;
  return out;
}

}  // namespace

StageElements& StageElements::operator+=(const StageElements& other) {
  dense += other.dense;
  expert += other.expert;
  largest_unit = std::max(largest_unit, other.largest_unit);
  largest_dense = std::max(largest_dense, other.largest_dense);
  largest_expert = std::max(largest_expert, other.largest_expert);
  trained_dense += other.trained_dense;
  trained_expert += other.trained_expert;
  largest_trained = std::max(largest_trained, other.largest_trained);
  saved += other.saved;
  largest_packed = std::max(largest_packed, other.largest_packed);
  kept_float8 += other.kept_float8;
  dense_matrices += other.dense_matrices;
  expert_matrices += other.expert_matrices;
  return *this;
}

StageElements stage_elements(const plan::TrainingPlan& plan, int stage) {
  StageElements out;
  const auto& part = plan.pipeline->stages[static_cast<std::size_t>(stage)].part;
  const auto& shares = plan.shares;
  if (part.has_embedding) add_unit(out, shares.embeddings);
  const double expert_ranks = plan.mesh.sizes().ep * plan.expert_tensor;
  const auto add_layer = [&](const plan::LayerShares& each, double join) {
    add_unit(out, each.dense + join, each.expert / expert_ranks);
    if (plan.adapters) return;
    out.dense_matrices += each.dense_matrices + join;
    out.expert_matrices += each.expert_matrices / expert_ranks;
  };
  const auto packed = packed_weights(plan, part);
  for (const int layer : part.layers) {
    const auto found = packed.find(layer);
    const auto saved = found == packed.end() ? 0 : found->second.saved;
    add_layer(shares.layer(layer), -saved);
    out.saved += saved;
    if (found != packed.end()) out.largest_packed = std::max(out.largest_packed, found->second.largest);
  }
  if (part.has_norm || part.has_head) {
    const bool own_head = part.has_head && (plan.model->layout.head_tied_to.empty() || !part.has_embedding);
    add_unit(out, (part.has_norm ? shares.norm : 0) + (own_head ? shares.head : 0));
  }
  for (int i = 0; i < plan.pipeline->stages[static_cast<std::size_t>(stage)].mtp_layers; ++i)
    add_layer(shares.layer(plan.model->spec.layers - 1),
              arch::mtp_join_elements(plan.model->spec) / plan.mesh.sizes().tp);
  for (const auto& tower : plan::towers_of(*plan.model, part)) {
    const auto elements = static_cast<double>(tower.parameters.value_or(0));
    out.dense += elements;
    // A tower that is trained here is one unit.
    const double unit = plan.model->spec.vision ? elements : elements / std::max(1, tower.layers);
    out.largest_unit = std::max(out.largest_unit, unit);
    out.largest_dense = std::max(out.largest_dense, unit);
  }
  if (plan.adapters) {
    add_adapters(plan, part, out);
  } else {
    out.trained_dense = out.dense;
    out.trained_expert = out.expert;
    out.largest_trained = out.largest_unit;
  }
  if (plan.frozen) leave_out_frozen(plan, part, out);
  if (const auto& float8 = plan.execution.precision.float8; float8 && float8->keep_weights)
    out.kept_float8 = float8_elements(plan, *float8, part);
  return out;
}

}  // namespace automodel::estimate
