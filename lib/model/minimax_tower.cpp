#include <cmath>

#include <fmt/format.h>

#include <ATen/TensorOperators.h>
#include <ATen/ops/matmul.h>

#include "base/error.h"
#include "model/patch_rows.h"
#include "model/vision_tower.h"
#include "ops/activation.h"
#include "ops/graph.h"
#include "ops/norm.h"

namespace automodel::model {
namespace {

/// Source: MiniMaxM3VLVisionModel and MiniMaxM3VLMultiModalProjector of transformers 5.23.
class MiniMaxTower : public ProjectedTower {
 public:
  MiniMaxTower(const arch::VisionSpec& spec, const TowerWeights& weights) : ProjectedTower(weights), spec_(spec) {
    const std::string tower(arch::kTowerModule), projector(arch::kProjectorModule);
    if (has_tower()) find_tower(tower);
    if (!has_projector()) return;
    first_ = linear({projector + ".linear_1"});
    second_ = linear({projector + ".linear_2"});
    joined_first_ = linear({projector + ".merge_linear_1"});
    joined_second_ = linear({projector + ".merge_linear_2"});
  }

 private:
  void find_tower(const std::string& tower) {
    patches_ = named(tower + ".embeddings.proj.weight");
    first_norm_ = norm(tower + ".pre_layrnorm");
    for (int layer = 0; layer < spec_.layers; ++layer)
      layers_.push_back(clip_layer(fmt::format("{}.layers.{}.", tower, layer)));
  }

  /// [patches, width]; patches attend to those of their picture.
  at::Tensor encode(const PictureValues& pictures, const at::Tensor& anchor) const override {
    const auto places = find_places(pictures.grids, spec_.merge);
    // A still picture is the same in all frames, so that their weights are summed before the product.
    const auto weight = ops::use(*patches_, anchor).sum(2).flatten(1);
    auto x = at::matmul(pictures.pixels, weight.t());
    AUTOMODEL_CHECK(std::ssize(places.rows) == x.size(0), "the pixels are those of the pictures' patches");
    x = ops::layer_norm(x, first_norm_.weight, first_norm_.bias, spec_.eps);
    const auto turns = third_rotation(places, spec_.hidden / spec_.heads, spec_.theta, x);
    for (const auto& layer : layers_) {
      const auto y = ops::layer_norm(x, layer.before_attention.weight, layer.before_attention.bias, spec_.eps);
      const auto attended = attend_within(ops::linear(y, layer.qkv), spec_.heads, turns, places.pictures);
      const auto [sum, z] = ops::add_layer_norm(x, ops::linear(attended, layer.out), layer.before_mlp.weight,
                                                layer.before_mlp.bias, spec_.eps);
      x = sum + ops::linear(ops::activate(ops::linear(z, layer.up), ops::Gate::kGelu), layer.down);
    }
    return x;
  }

  /// Patches become as wide as the decoder, then a block's are joined.
  at::Tensor project(const at::Tensor& x, const at::Tensor& /*anchor*/) const override {
    const auto mlp = [](const at::Tensor& in, const ops::Linear& up, const ops::Linear& down) {
      return ops::linear(ops::activate(ops::linear(in, up), ops::Gate::kGelu), down);
    };
    const auto rows = mlp(x, first_, second_);
    return mlp(rows.reshape({-1, rows.size(1) * spec_.merge * spec_.merge}), joined_first_, joined_second_);
  }

  arch::VisionSpec spec_;
  ops::Parameter* patches_ = nullptr;
  Norm first_norm_ = {};
  std::vector<PreNormLayer> layers_ = {};
  ops::Linear first_ = {}, second_ = {}, joined_first_ = {}, joined_second_ = {};
};

}  // namespace

std::unique_ptr<const VisionTower> make_minimax_tower(const arch::VisionSpec& spec, const TowerWeights& weights) {
  return std::make_unique<const MiniMaxTower>(spec, weights);
}

}  // namespace automodel::model
