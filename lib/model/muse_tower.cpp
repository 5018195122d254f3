#include <algorithm>

#include <fmt/format.h>

#include <ATen/TensorOperators.h>
#include <ATen/ops/matmul.h>

#include "base/error.h"
#include "model/blocks.h"
#include "model/patch_rows.h"
#include "model/vision_tower.h"
#include "ops/activation.h"
#include "ops/graph.h"
#include "ops/norm.h"

namespace automodel::model {
namespace {

/// Source: MuseGlimmerVisionModel and get_image_features of MuseGlimmerModel in transformers 5.23.
class MuseTower : public ProjectedTower {
 public:
  MuseTower(const arch::VisionSpec& spec, const TowerWeights& weights)
      : ProjectedTower(weights, {arch::kAdapterModule, arch::kProjectionModule}), spec_(spec) {
    const std::string tower(arch::kTowerModule), adapter(arch::kAdapterModule);
    if (has_tower()) find_tower(tower);
    if (!has_projector()) return;
    first_ = linear({adapter + ".fc1"});
    second_ = linear({adapter + ".fc2"});
    projection_ = linear({std::string(arch::kProjectionModule)});
  }

 private:
  static constexpr double kLayerEps = 1e-5;  // whatever layer_norm_eps is
  void find_tower(const std::string& tower) {
    patches_ = linear({tower + ".patch_embedder.patch_embedding"});
    table_ = named(tower + ".patch_embedder.position_embedding_table.weight");
    first_norm_ = norm(tower + ".ln_pre");
    last_norm_ = norm(tower + ".ln_post");
    for (int layer = 0; layer < spec_.layers; ++layer) {
      const auto prefix = fmt::format("{}.layers.{}.", tower, layer), attention = prefix + "attn.";
      layers_.push_back({norm(prefix + "norm1"), norm(prefix + "norm2"),
                         linear({attention + "q_proj", attention + "k_proj", attention + "v_proj"}),
                         linear({attention + "proj"}), linear({prefix + "mlp.fc1"}), linear({prefix + "mlp.fc2"})});
    }
  }

  /// The first quarter of a head's frequencies turns by column, the second by row. transformers counts both from 1,
  /// which no score shows.
  PatchRotation rotation(const PatchPlaces& places, const at::Tensor& like) const {
    return axial_rotation(places, spec_.hidden / spec_.heads, spec_.theta, true, like);
  }

  /// A still picture is the same in all frames: their weights are summed before the product, except beside adapters.
  at::Tensor of_frames(const at::Tensor& pixels, const at::Tensor& anchor) const {
    if (patches_.adapters.empty())
      return at::matmul(pixels,
                        ops::use(*patches_.weights.front(), anchor).unflatten(1, {spec_.frames, -1}).sum(1).t());
    return ops::linear(pixels.repeat({1, spec_.frames}) + anchor.to(pixels.scalar_type()), patches_);
  }

  /// [patches, width] of the pixels.
  at::Tensor embed(const PictureValues& pictures, const PatchPlaces& places, const at::Tensor& anchor) const {
    const auto x = of_frames(pictures.pixels, anchor);
    const auto positions = table_rows(ops::use(*table_, anchor), spec_.table, pictures.grids, places, true);
    return x + positions.to(x.scalar_type());
  }

  /// [patches, width]; patches attend to those of their window, in some layers to all of the picture.
  at::Tensor encode(const PictureValues& pictures, const at::Tensor& anchor) const override {
    auto places = find_places(pictures.grids, spec_.merge);
    auto x = embed(pictures, places, anchor);
    AUTOMODEL_CHECK(std::ssize(places.rows) == x.size(0), "the pixels are those of the pictures' patches");
    const auto windows = put_in_windows(pictures.grids, spec_.window, places);
    const auto order = indices(windows.order, x.device());
    x = ops::layer_norm(x, first_norm_.weight, first_norm_.bias, spec_.eps).index_select(0, order);
    const auto turns = rotation(places, x);
    for (std::size_t number = 0; number < layers_.size(); ++number) {
      const auto& layer = layers_[number];
      const auto& whole = spec_.whole_layers;
      const bool all = std::find(whole.begin(), whole.end(), static_cast<int>(number)) != whole.end();
      const auto y = ops::layer_norm(x, layer.before_attention.weight, layer.before_attention.bias, kLayerEps);
      const auto attended =
          attend_within(ops::linear(y, layer.qkv), spec_.heads, turns, all ? places.pictures : windows.sizes);
      const auto [sum, z] = ops::add_layer_norm(x, ops::linear(attended, layer.out), layer.before_mlp.weight,
                                                layer.before_mlp.bias, kLayerEps);
      x = sum + ops::linear(ops::activate(ops::linear(z, layer.up), ops::Gate::kGelu), layer.down);
    }
    return ops::layer_norm(x, last_norm_.weight, last_norm_.bias, spec_.eps)
        .index_select(0, indices(inverse(windows.order), x.device()));
  }

  /// A block's patches are joined channel by channel.
  at::Tensor project(const at::Tensor& x, const at::Tensor& /*anchor*/) const override {
    const std::int64_t block = std::int64_t{spec_.merge} * spec_.merge;
    const auto joined = x.view({-1, block, spec_.hidden}).transpose(1, 2).flatten(1);
    const auto hidden = ops::activate(ops::linear(joined, first_), ops::Gate::kGelu);
    const auto rows = ops::linear(ops::activate(ops::linear(hidden, second_), ops::Gate::kGelu), projection_);
    return unit_rms(rows, spec_.projector_eps);
  }

  arch::VisionSpec spec_;
  ops::Linear patches_ = {};
  ops::Parameter* table_ = nullptr;
  Norm first_norm_ = {}, last_norm_ = {};
  std::vector<PreNormLayer> layers_ = {};
  ops::Linear first_ = {}, second_ = {}, projection_ = {};
};

}  // namespace

std::unique_ptr<const VisionTower> make_muse_tower(const arch::VisionSpec& spec, const TowerWeights& weights) {
  return std::make_unique<const MuseTower>(spec, weights);
}

}  // namespace automodel::model
