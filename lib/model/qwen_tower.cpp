#include <algorithm>

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

using arch::TowerKind;

class QwenTower : public VisionTower {
 public:
  QwenTower(const arch::VisionSpec& spec, const TowerWeights& weights)
      : VisionTower(weights), spec_(spec), old_(spec.kind == TowerKind::kQwen25) {
    const std::string tower(arch::kVisualModule);
    patches_ = named(tower + ".patch_embed.proj.weight");
    if (!old_) {
      patch_bias_ = named(tower + ".patch_embed.proj.bias");
      table_ = named(tower + ".pos_embed.weight");
    }
    for (int layer = 0; layer < spec_.layers; ++layer) {
      const auto prefix = fmt::format("{}.blocks.{}.", tower, layer);
      layers_.push_back(
          {norm(prefix + "norm1"), norm(prefix + "norm2"), linear({prefix + "attn.qkv"}),
           linear({prefix + "attn.proj"}),
           old_ ? linear({prefix + "mlp.gate_proj", prefix + "mlp.up_proj"}) : linear({prefix + "mlp.linear_fc1"}),
           linear({prefix + (old_ ? "mlp.down_proj" : "mlp.linear_fc2")})});
    }
    const auto merger = [&](const std::string& name, bool joined) {
      return Merger{norm(name + (old_ ? ".ln_q" : ".norm")), linear({name + (old_ ? ".mlp.0" : ".linear_fc1")}),
                    linear({name + (old_ ? ".mlp.2" : ".linear_fc2")}), joined};
    };
    merger_ = merger(tower + ".merger", false);
    for (std::size_t j = 0; j < spec_.deep_layers.size(); ++j)
      deep_.push_back(merger(fmt::format("{}.deepstack_merger_list.{}", tower, j), true));
    trained_ = trained(tower);
  }

  PictureRows forward(const PictureValues& pictures, const at::Tensor& anchor) const override {
    if (trained_) return encode(pictures, anchor);
    const ops::NoGraph guard;
    return encode(pictures, anchor);
  }

 private:
  /// Joins blocks of patches and projects them to the decoder's width.
  struct Merger {
    Norm norm;
    ops::Linear first, second;
    bool joined;  ///< the norm is over the joined block
  };

  at::Tensor normed(const at::Tensor& x, const Norm& norm) const {
    return old_ ? ops::rms_norm(x, *norm.weight, spec_.eps) : ops::layer_norm(x, norm.weight, norm.bias, spec_.eps);
  }
  std::pair<at::Tensor, at::Tensor> add_normed(const at::Tensor& x, const at::Tensor& delta, const Norm& norm) const {
    return old_ ? ops::add_rms_norm(x, delta, *norm.weight, spec_.eps)
                : ops::add_layer_norm(x, delta, norm.weight, norm.bias, spec_.eps);
  }

  /// [patches, width] of a picture's pixels.
  at::Tensor embed(const PictureValues& pictures, const PatchPlaces& places, const at::Tensor& anchor) const {
    // A still picture is the same in all frames, so that their weights are summed before the product.
    const auto weight = ops::use(*patches_, anchor).sum(2).flatten(1);
    auto x = at::matmul(pictures.pixels, weight.t());
    if (old_) return x;
    const auto positions = table_rows(ops::use(*table_, anchor), spec_.table, pictures.grids, places, false);
    return x + ops::use(*patch_bias_, anchor) + positions.to(x.scalar_type());
  }

  /// Each head's first quarter and third quarter rotate by row, the others by column.
  PatchRotation rotation(const PatchPlaces& places, const at::Tensor& like) const {
    constexpr double kTheta = 10000;
    return axial_rotation(places, spec_.hidden / spec_.heads, kTheta, false, like);
  }

  at::Tensor merged(const at::Tensor& x, const Merger& merger) const {
    const std::int64_t joined = std::int64_t{spec_.hidden} * spec_.merge * spec_.merge;
    const auto y =
        merger.joined ? normed(x.reshape({-1, joined}), merger.norm) : normed(x, merger.norm).reshape({-1, joined});
    return ops::linear(ops::activate(ops::linear(y, merger.first), ops::Gate::kGelu), merger.second);
  }

  PictureRows encode(const PictureValues& pictures, const at::Tensor& anchor) const {
    auto places = find_places(pictures.grids, spec_.merge);
    auto x = embed(pictures, places, anchor);
    AUTOMODEL_CHECK(std::ssize(places.rows) == x.size(0), "the pixels are those of the pictures' patches");
    PatchWindows windows;
    if (spec_.window > 0) {
      windows = put_in_windows(pictures.grids, spec_.window * spec_.merge, places);
      x = x.index_select(0, indices(windows.order, x.device()));
    }
    const auto turns = rotation(places, x);
    PictureRows out;
    for (std::size_t number = 0; number < layers_.size(); ++number) {
      const auto& layer = layers_[number];
      const auto& whole = spec_.whole_layers;
      const bool all = spec_.window == 0 || std::find(whole.begin(), whole.end(), number) != whole.end();
      const auto y = normed(x, layer.before_attention);
      const auto attended =
          attend_within(ops::linear(y, layer.qkv), spec_.heads, turns, all ? places.pictures : windows.sizes);
      const auto [sum, z] = add_normed(x, ops::linear(attended, layer.out), layer.before_mlp);
      const auto up = ops::linear(z, layer.up);
      x = sum +
          ops::linear(old_ ? ops::gated(up, ops::Gate::kSilu) : ops::activate(up, ops::Gate::kGeluTanh), layer.down);
      for (std::size_t j = 0; j < spec_.deep_layers.size(); ++j)
        if (spec_.deep_layers[j] == static_cast<int>(number)) out.deep.push_back(merged(x, deep_[j]));
    }
    if (spec_.window > 0) x = x.index_select(0, indices(inverse(windows.order), x.device()));
    out.rows = merged(x, merger_);
    return out;
  }

  arch::VisionSpec spec_;
  bool old_;  ///< Qwen2.5: RMSNorm and a gated MLP
  ops::Parameter *patches_ = nullptr, *patch_bias_ = nullptr, *table_ = nullptr;
  std::vector<PreNormLayer> layers_ = {};
  Merger merger_ = {};
  std::vector<Merger> deep_ = {};
  bool trained_ = false;
};

}  // namespace

std::unique_ptr<const VisionTower> make_qwen_tower(const arch::VisionSpec& spec, const TowerWeights& weights) {
  return std::make_unique<const QwenTower>(spec, weights);
}

}  // namespace automodel::model
