#include "model/vision_tower.h"

#include <algorithm>

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>

#include "base/error.h"
#include "model/blocks.h"
#include "ops/graph.h"

namespace automodel::model {

at::Tensor PictureRows::joined() const {
  std::vector<at::Tensor> all = {rows};
  all.insert(all.end(), deep.begin(), deep.end());
  return all.size() == 1 ? rows : at::cat(all, 1);
}

PictureRows PictureRows::apart(const at::Tensor& joined, std::int64_t width) {
  if (joined.size(1) == width) return {joined};
  PictureRows out{joined.narrow(1, 0, width).contiguous()};
  for (std::int64_t at = width; at < joined.size(1); at += width)
    out.deep.push_back(joined.narrow(1, at, width).contiguous());
  return out;
}

VisionTower::VisionTower(const TowerWeights& weights)
    : weights_(weights), units_(weights.all.units_of([](const Weight& each) { return each.info.in_tower(); })) {}

ops::Parameter* VisionTower::named(const std::string& name) const {
  auto* found = weights_.all.parameter(name);
  AUTOMODEL_CHECK(found != nullptr, "a weight of the vision tower is missing: " + name);
  return found;
}

VisionTower::Norm VisionTower::norm(const std::string& name) const {
  return {named(name + ".weight"), weights_.all.parameter(name + ".bias")};
}

ops::Linear VisionTower::linear(const std::vector<std::string>& names) const {
  ops::Linear out;
  for (const auto& name : names) {
    out.weights.push_back(named(name + ".weight"));
    if (auto* bias = weights_.all.parameter(name + ".bias")) out.biases.push_back(bias);
  }
  adapt(weights_.all, weights_.adapters, out);
  return out;
}

VisionTower::PreNormLayer VisionTower::clip_layer(const std::string& prefix) const {
  const auto attention = prefix + "self_attn.";
  return {norm(prefix + "layer_norm1"),
          norm(prefix + "layer_norm2"),
          linear({attention + "q_proj", attention + "k_proj", attention + "v_proj"}),
          linear({attention + "out_proj"}),
          linear({prefix + "mlp.fc1"}),
          linear({prefix + "mlp.fc2"})};
}

bool VisionTower::has(std::string_view module, bool trained) const {
  return std::ranges::any_of(weights_.all.all(), [&](const auto& weight) {
    return weight->info.in_tower() && weight->info.fqn.starts_with(module) && (weight->trained || !trained);
  });
}

ProjectedTower::ProjectedTower(const TowerWeights& weights, std::initializer_list<std::string_view> projector,
                               std::string_view tower)
    : VisionTower(weights),
      has_tower_(has(tower)),
      has_projector_(std::ranges::any_of(projector, [&](auto module) { return has(module); })),
      tower_trained_(trained(tower)),
      projector_trained_(std::ranges::any_of(projector, [&](auto module) { return trained(module); })) {}

PictureRows ProjectedTower::forward(const PictureValues& pictures, const at::Tensor& anchor) const {
  if (tower_trained_) return {project(encode(pictures, anchor), anchor)};
  at::Tensor x;
  {
    const ops::NoGraph guard;
    x = has_tower_ ? encode(pictures, anchor) : pictures.features;
    if (!has_projector_) return {x.flatten(0, -2)};
    if (!projector_trained_) return {project(x, anchor)};
  }
  return {project(x + anchor.to(x.scalar_type()), anchor)};  // which is 0, but has a gradient
}

std::unique_ptr<const VisionTower> make_vision_tower(const arch::VisionSpec& spec, const TowerWeights& weights) {
  if (spec.kind == arch::TowerKind::kPixtral) return make_pixtral_tower(spec, weights);
  if (spec.kind == arch::TowerKind::kMiniMax) return make_minimax_tower(spec, weights);
  if (spec.kind == arch::TowerKind::kStep) return make_step_tower(spec, weights);
  if (spec.kind == arch::TowerKind::kGemma4) return make_gemma4_tower(spec, weights);
  if (spec.kind == arch::TowerKind::kMuse) return make_muse_tower(spec, weights);
  return spec.qwen() ? make_qwen_tower(spec, weights) : make_vit_tower(spec, weights);
}

}  // namespace automodel::model
