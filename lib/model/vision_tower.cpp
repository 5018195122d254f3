#include "model/vision_tower.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/sigmoid.h>

#include "base/error.h"
#include "ops/activation.h"
#include "ops/attention.h"
#include "ops/graph.h"
#include "ops/norm.h"
#include "ops/split.h"

namespace automodel::model {
namespace {

/// x sigmoid(1.702 x): quick_gelu, CLIP's stand-in for GELU.
at::Tensor quick_gelu(const at::Tensor& x) {
  constexpr double kSlope = 1.702;
  return x * at::sigmoid(x * kSlope);
}

}  // namespace

VisionTower::VisionTower(const arch::VisionSpec& spec, const Weights& weights) : spec_(spec) {
  const auto named = [&](const std::string& name) {
    auto* found = weights.parameter(name);
    AUTOMODEL_CHECK(found != nullptr, "a weight of the vision tower is missing: " + name);
    return found;
  };
  const auto norm = [&](const std::string& name) { return Norm{named(name + ".weight"), named(name + ".bias")}; };
  const auto linear = [&](const std::vector<std::string>& names) {
    ops::Linear out;
    for (const auto& name : names) {
      out.weights.push_back(named(name + ".weight"));
      if (auto* bias = weights.parameter(name + ".bias")) out.biases.push_back(bias);
    }
    return out;
  };
  const std::string tower(arch::kTowerModule), projector(arch::kProjectorModule);
  class_row_ = named(tower + ".embeddings.class_embedding");
  patches_ = named(tower + ".embeddings.patch_embedding.weight");
  positions_ = named(tower + ".embeddings.position_embedding.weight");
  first_norm_ = norm(tower + ".pre_layrnorm");
  for (int layer = 0; layer < spec_.used_layers; ++layer) {
    const auto prefix = fmt::format("{}.encoder.layers.{}.", tower, layer);
    layers_.push_back({norm(prefix + "layer_norm1"), norm(prefix + "layer_norm2"),
                       linear({prefix + "self_attn.q_proj", prefix + "self_attn.k_proj", prefix + "self_attn.v_proj"}),
                       linear({prefix + "self_attn.out_proj"}), linear({prefix + "mlp.fc1"}),
                       linear({prefix + "mlp.fc2"})});
  }
  first_ = linear({projector + ".linear_1"});
  second_ = linear({projector + ".linear_2"});
  for (const auto& weight : weights.all()) {
    if (weight->info.role != arch::Role::kTower) continue;
    (weight->info.fqn.starts_with(projector) ? projector_trained_ : tower_trained_) |= weight->trained;
    if (std::find(units_.begin(), units_.end(), weight->unit) == units_.end()) units_.push_back(weight->unit);
  }
}

at::Tensor VisionTower::forward(const at::Tensor& pixels, const at::Tensor& anchor) const {
  if (tower_trained_) return project(encode(pixels, anchor));
  at::Tensor x;
  {
    const ops::NoGraph guard;
    x = encode(pixels, anchor);
    if (!projector_trained_) return project(x);
  }
  return project(x + anchor.to(x.scalar_type()));  // which is 0, but has a gradient
}

at::Tensor VisionTower::embed(const at::Tensor& pixels, const at::Tensor& anchor) const {
  const std::int64_t side = spec_.image / spec_.patch, patch = spec_.patch, count = pixels.size(0);
  // A convolution whose windows do not overlap is a matmul of its patches.
  const auto cut = pixels.narrow(2, 0, side * patch).narrow(3, 0, side * patch);
  const auto patches = cut.reshape({count, arch::VisionSpec::kChannels, side, patch, side, patch})
                           .permute({0, 2, 4, 1, 3, 5})
                           .reshape({count, side * side, -1});
  const auto rows = at::matmul(patches, ops::use(*patches_, anchor).flatten(1).t());
  const auto first = ops::use(*class_row_, anchor).expand({count, 1, spec_.hidden});
  return at::cat({first, rows}, 1) + ops::use(*positions_, anchor);
}

at::Tensor VisionTower::attend(const Layer& layer, const at::Tensor& y) const {
  const std::int64_t heads = spec_.heads, width = spec_.hidden / heads;
  const auto parts = ops::split(ops::linear(y, layer.qkv), {spec_.hidden, spec_.hidden, spec_.hidden});
  const auto by_head = [&](const at::Tensor& x) { return x.unflatten(2, {heads, width}); };
  const auto out = ops::attention(by_head(parts[0]), by_head(parts[1]), by_head(parts[2]),
                                  {.scale = 1 / std::sqrt(static_cast<double>(width)), .causal = false});
  return ops::linear(out.flatten(2), layer.out);
}

at::Tensor VisionTower::encode(const at::Tensor& pixels, const at::Tensor& anchor) const {
  auto x = ops::layer_norm(embed(pixels, anchor), first_norm_.weight, first_norm_.bias, spec_.eps);
  for (const auto& layer : layers_) {
    const auto y = ops::layer_norm(x, layer.before_attention.weight, layer.before_attention.bias, spec_.eps);
    const auto [sum, z] =
        ops::add_layer_norm(x, attend(layer, y), layer.before_mlp.weight, layer.before_mlp.bias, spec_.eps);
    x = sum + ops::linear(quick_gelu(ops::linear(z, layer.up)), layer.down);
  }
  return spec_.class_row ? x : x.narrow(1, 1, spec_.patches());
}

at::Tensor VisionTower::project(const at::Tensor& x) const {
  return ops::linear(ops::activate(ops::linear(x, first_), ops::Gate::kGelu), second_).flatten(0, 1);
}

}  // namespace automodel::model
