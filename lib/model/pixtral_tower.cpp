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

/// Source: PixtralVisionModel and Mistral3MultiModalProjector of transformers 5.23.
class PixtralTower : public ProjectedTower {
 public:
  PixtralTower(const arch::VisionSpec& spec, const TowerWeights& weights) : ProjectedTower(weights), spec_(spec) {
    const std::string tower(arch::kTowerModule), projector(arch::kProjectorModule);
    if (has_tower()) find_tower(tower);
    if (!has_projector()) return;
    projector_norm_ = named(projector + ".norm.weight");
    merging_ = linear({projector + ".patch_merger.merging_layer"});
    first_ = linear({projector + ".linear_1"});
    second_ = linear({projector + ".linear_2"});
  }

 private:
  static constexpr double kEps = 1e-5;
  struct Layer {
    ops::Parameter *before_attention, *before_mlp;
    ops::Linear qkv, out, up, down;  ///< `up`: gate and up
  };

  void find_tower(const std::string& tower) {
    patches_ = named(tower + ".patch_conv.weight");
    first_norm_ = named(tower + ".ln_pre.weight");
    for (int layer = 0; layer < spec_.used_layers; ++layer) {
      const auto prefix = fmt::format("{}.transformer.layers.{}.", tower, layer);
      const auto attention = prefix + "attention.", mlp = prefix + "feed_forward.";
      layers_.push_back({named(prefix + "attention_norm.weight"), named(prefix + "ffn_norm.weight"),
                         linear({attention + "q_proj", attention + "k_proj", attention + "v_proj"}),
                         linear({attention + "o_proj"}), linear({mlp + "gate_proj", mlp + "up_proj"}),
                         linear({mlp + "down_proj"})});
    }
  }

  /// Even frequencies rotate by row, odd ones by column.
  PatchRotation rotation(const PatchPlaces& places, const at::Tensor& like) const {
    const int width = spec_.hidden / spec_.heads, half = width / 2, quarter = half / 2;
    std::vector<float> frequencies;
    for (int i = 0; i < half; ++i)
      frequencies.push_back(static_cast<float>(std::pow(spec_.theta, -2.0 * (i % quarter * 2 + i / quarter) / width)));
    return rotation_of(places, frequencies, like);
  }

  /// [patches, width]; each picture's attend to each other.
  at::Tensor encode(const PictureValues& pictures, const at::Tensor& anchor) const override {
    const auto places = find_places(pictures.grids, spec_.merge);
    auto x = at::matmul(pictures.pixels, ops::use(*patches_, anchor).flatten(1).t());
    AUTOMODEL_CHECK(std::ssize(places.rows) == x.size(0), "the pixels are those of the pictures' patches");
    x = ops::rms_norm(x, *first_norm_, kEps);
    const auto turns = rotation(places, x);
    for (const auto& layer : layers_) {
      const auto y = ops::rms_norm(x, *layer.before_attention, kEps);
      const auto attended = attend_within(ops::linear(y, layer.qkv), spec_.heads, turns, places.pictures);
      const auto [sum, z] = ops::add_rms_norm(x, ops::linear(attended, layer.out), *layer.before_mlp, kEps);
      const auto gate = spec_.gelu ? ops::Gate::kGelu : ops::Gate::kSilu;
      x = sum + ops::linear(ops::gated(ops::linear(z, layer.up), gate), layer.down);
    }
    return x;
  }

  /// A block's patches are joined channel by channel.
  at::Tensor project(const at::Tensor& x, const at::Tensor& /*anchor*/) const override {
    const std::int64_t block = std::int64_t{spec_.merge} * spec_.merge;
    const auto joined = ops::rms_norm(x, *projector_norm_, spec_.projector_eps)
                            .view({-1, block, spec_.hidden})
                            .transpose(1, 2)
                            .flatten(1);
    return ops::linear(ops::activate(ops::linear(ops::linear(joined, merging_), first_), ops::Gate::kGelu), second_);
  }

  arch::VisionSpec spec_;
  ops::Parameter *patches_ = nullptr, *first_norm_ = nullptr, *projector_norm_ = nullptr;
  std::vector<Layer> layers_ = {};
  ops::Linear merging_ = {}, first_ = {}, second_ = {};
};

}  // namespace

std::unique_ptr<const VisionTower> make_pixtral_tower(const arch::VisionSpec& spec, const TowerWeights& weights) {
  return std::make_unique<const PixtralTower>(spec, weights);
}

}  // namespace automodel::model
