#include <cmath>

#include <fmt/format.h>

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/sigmoid.h>

#include "model/vision_tower.h"
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

class VitTower : public ProjectedTower {
 public:
  VitTower(const arch::VisionSpec& spec, const TowerWeights& weights)
      : ProjectedTower(weights), spec_(spec), clip_(spec.kind == arch::TowerKind::kClip) {
    const std::string tower(arch::kTowerModule), projector(arch::kProjectorModule);
    if (has_tower()) find_tower(tower);
    if (!has_projector()) return;
    if (spec_.pooled > 0) {
      pooled_norm_ = named(projector + ".mm_soft_emb_norm.weight");
      matrix_ = named(projector + ".mm_input_projection_weight");
    } else {
      first_ = linear({projector + ".linear_1"});
      second_ = linear({projector + ".linear_2"});
    }
  }

 private:
  void find_tower(const std::string& tower) {
    if (clip_) class_row_ = named(tower + ".embeddings.class_embedding");
    if (!clip_) patch_bias_ = named(tower + ".embeddings.patch_embedding.bias");
    patches_ = named(tower + ".embeddings.patch_embedding.weight");
    positions_ = named(tower + ".embeddings.position_embedding.weight");
    if (clip_) first_norm_ = norm(tower + ".pre_layrnorm");
    for (int layer = 0; layer < spec_.used_layers; ++layer)
      layers_.push_back(clip_layer(fmt::format("{}.encoder.layers.{}.", tower, layer)));
    if (spec_.pooled > 0) last_norm_ = norm(tower + ".post_layernorm");
  }
  /// [pictures, rows, width]: the row of CLIP's class token first.
  at::Tensor embed(const at::Tensor& pixels, const at::Tensor& anchor) const;
  at::Tensor encode(const PictureValues& pictures, const at::Tensor& anchor) const override;
  /// `x`: [pictures, rows, width], or the rows of all pictures.
  at::Tensor project(const at::Tensor& x, const at::Tensor& anchor) const override;
  /// Attention of a picture's rows to each other.
  at::Tensor attend(const PreNormLayer& layer, const at::Tensor& y) const;

  arch::VisionSpec spec_;
  bool clip_;  ///< else SigLIP
  ops::Parameter *class_row_ = nullptr, *patches_ = nullptr, *patch_bias_ = nullptr, *positions_ = nullptr;
  Norm first_norm_ = {}, last_norm_ = {};
  std::vector<PreNormLayer> layers_ = {};
  ops::Linear first_ = {}, second_ = {};                       ///< LLaVA's projector
  ops::Parameter *pooled_norm_ = nullptr, *matrix_ = nullptr;  ///< Gemma 3's
};

at::Tensor VitTower::embed(const at::Tensor& pixels, const at::Tensor& anchor) const {
  const std::int64_t side = spec_.image / spec_.patch, patch = spec_.patch, count = pixels.size(0);
  // A convolution whose windows do not overlap is a matmul of its patches.
  const auto cut = pixels.narrow(2, 0, side * patch).narrow(3, 0, side * patch);
  const auto patches = cut.reshape({count, arch::VisionSpec::kChannels, side, patch, side, patch})
                           .permute({0, 2, 4, 1, 3, 5})
                           .reshape({count, side * side, -1});
  const auto rows = at::matmul(patches, ops::use(*patches_, anchor).flatten(1).t());
  const auto positions = ops::use(*positions_, anchor);
  if (!clip_) return rows + ops::use(*patch_bias_, anchor) + positions;
  const auto first = ops::use(*class_row_, anchor).expand({count, 1, spec_.hidden});
  return at::cat({first, rows}, 1) + positions;
}

at::Tensor VitTower::attend(const PreNormLayer& layer, const at::Tensor& y) const {
  const std::int64_t heads = spec_.heads, width = spec_.hidden / heads;
  const auto parts = ops::split(ops::linear(y, layer.qkv), {spec_.hidden, spec_.hidden, spec_.hidden});
  const auto by_head = [&](const at::Tensor& x) { return x.unflatten(2, {heads, width}); };
  const auto out = ops::attention(by_head(parts[0]), by_head(parts[1]), by_head(parts[2]),
                                  {.scale = 1 / std::sqrt(static_cast<double>(width)), .causal = false});
  return ops::linear(out.flatten(2), layer.out);
}

at::Tensor VitTower::encode(const PictureValues& pictures, const at::Tensor& anchor) const {
  auto x = embed(pictures.pixels, anchor);
  if (clip_) x = ops::layer_norm(x, first_norm_.weight, first_norm_.bias, spec_.eps);
  for (const auto& layer : layers_) {
    const auto y = ops::layer_norm(x, layer.before_attention.weight, layer.before_attention.bias, spec_.eps);
    const auto [sum, z] =
        ops::add_layer_norm(x, attend(layer, y), layer.before_mlp.weight, layer.before_mlp.bias, spec_.eps);
    const auto up = ops::linear(z, layer.up);
    x = sum + ops::linear(clip_ ? quick_gelu(up) : ops::activate(up, ops::Gate::kGeluTanh), layer.down);
  }
  if (spec_.pooled > 0) return ops::layer_norm(x, last_norm_.weight, last_norm_.bias, spec_.eps);
  return spec_.drops_first ? x.narrow(1, 1, spec_.tokens()) : x;
}

at::Tensor VitTower::project(const at::Tensor& of_tower, const at::Tensor& anchor) const {
  const auto x = of_tower.view({-1, spec_.pooled > 0 ? spec_.rows() : spec_.tokens(), spec_.hidden});
  if (spec_.pooled == 0)
    return ops::linear(ops::activate(ops::linear(x, first_), ops::Gate::kGelu), second_).flatten(0, 1);
  const std::int64_t side = spec_.pooled, square = spec_.image / spec_.patch / side;
  const auto means = x.reshape({x.size(0), side, square, side, square, spec_.hidden}).mean({2, 4});
  const auto normed = ops::rms_norm(means.reshape({-1, spec_.hidden}), *pooled_norm_, spec_.eps, 1);
  return at::matmul(normed, ops::use(*matrix_, anchor));
}

}  // namespace

std::unique_ptr<const VisionTower> make_vit_tower(const arch::VisionSpec& spec, const TowerWeights& weights) {
  return std::make_unique<const VitTower>(spec, weights);
}

}  // namespace automodel::model
