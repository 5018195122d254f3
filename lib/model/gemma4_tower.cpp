#include <array>
#include <cmath>

#include <fmt/format.h>

#include <ATen/TensorOperators.h>
#include <ATen/ops/clamp.h>
#include <ATen/ops/from_blob.h>

#include "base/error.h"
#include "model/blocks.h"
#include "model/patch_rows.h"
#include "model/vision_tower.h"
#include "ops/activation.h"
#include "ops/element_type.h"
#include "ops/graph.h"
#include "ops/norm.h"

namespace automodel::model {
namespace {

/// A linear module whose inputs and outputs may be limited to stored ranges, outside of which they have no gradient.
struct ClippedLinear {
  ops::Linear linear = {};
  std::array<ops::Parameter*, 2> input = {}, output = {};  ///< min and max, scalars; null: no limits

  static at::Tensor limited(const at::Tensor& x, const std::array<ops::Parameter*, 2>& limits) {
    if (limits[0] == nullptr) return x;
    const auto type = x.scalar_type();
    return at::clamp(x, copied(*limits[0], type), copied(*limits[1], type));
  }
  at::Tensor operator()(const at::Tensor& x) const { return limited(ops::linear(limited(x, input), linear), output); }
};

/// Source: Gemma4VisionModel and Gemma4MultimodalEmbedder of transformers 5.23.
class Gemma4Tower : public ProjectedTower {
 public:
  Gemma4Tower(const arch::VisionSpec& spec, const TowerWeights& weights)
      : ProjectedTower(weights, {arch::kEmbedderModule}), spec_(spec) {
    const std::string tower(arch::kTowerModule);
    if (has_tower()) find_tower(tower);
    if (has_projector()) projection_ = linear({std::string(arch::kEmbedderModule) + ".embedding_projection"});
  }

 private:
  struct Layer {
    ops::Parameter *before_attention, *after_attention, *before_mlp, *after_mlp, *query_norm, *key_norm;
    ClippedLinear query, key, value, out, gate, up, down;
  };

  void find_tower(const std::string& tower) {
    patches_ = linear({tower + ".patch_embedder.input_proj"});
    positions_ = named(tower + ".patch_embedder.position_embedding_table");
    for (int layer = 0; layer < spec_.layers; ++layer) {
      const auto prefix = fmt::format("{}.encoder.layers.{}.", tower, layer);
      const auto norm = [&](const char* name) { return named(prefix + name + ".weight"); };
      const auto clipped = [&](const char* name) { return clipped_linear(prefix + name); };
      layers_.push_back({norm("input_layernorm"), norm("post_attention_layernorm"), norm("pre_feedforward_layernorm"),
                         norm("post_feedforward_layernorm"), norm("self_attn.q_norm"), norm("self_attn.k_norm"),
                         clipped("self_attn.q_proj"), clipped("self_attn.k_proj"), clipped("self_attn.v_proj"),
                         clipped("self_attn.o_proj"), clipped("mlp.gate_proj"), clipped("mlp.up_proj"),
                         clipped("mlp.down_proj")});
    }
    if (spec_.standardized) {
      bias_ = named(tower + ".std_bias");
      scale_ = named(tower + ".std_scale");
    }
  }

  ClippedLinear clipped_linear(const std::string& name) const {
    ClippedLinear out{.linear = linear({name + ".linear"})};
    if (!spec_.clipped) return out;
    out.input = {named(name + ".input_min"), named(name + ".input_max")};
    out.output = {named(name + ".output_min"), named(name + ".output_max")};
    return out;
  }

  /// [patches, width] of the pixels, from 0 to 1.
  at::Tensor embed(const at::Tensor& pixels, const PatchPlaces& places, const at::Tensor& anchor) const {
    const auto tables = ops::use(*positions_, anchor);
    const auto of_axis = [&](std::int64_t axis, const std::vector<int>& at) {
      const auto rows = at::from_blob(const_cast<int*>(at.data()), {std::ssize(at)}, at::kInt).to(at::kLong);
      return tables.select(0, axis).index_select(0, rows.to(pixels.device()));
    };
    return ops::linear((pixels - 0.5) * 2 + anchor.to(pixels.scalar_type()), patches_) + of_axis(0, places.columns) +
           of_axis(1, places.rows);
  }

  /// Half of a head turns by column, the other by row. Each half's pairs are (i, i + half of it); `turns` has them as
  /// pairs of the whole head, in whose order by_pairs() puts a head.
  PatchRotation rotation(const PatchPlaces& places, const at::Tensor& like) const {
    return axial_rotation(places, spec_.hidden / spec_.heads, spec_.theta, true, like);
  }
  static at::Tensor by_pairs(const at::Tensor& heads) {
    return heads.unflatten(-1, {2, 2, heads.size(-1) / 4}).transpose(-3, -2).flatten(-3).contiguous();
  }

  at::Tensor attend(const Layer& layer, const at::Tensor& y, const PatchRotation& turns,
                    const PatchPlaces& places) const {
    const auto by_head = [&](const at::Tensor& x) {
      return x.view({1, x.size(0), spec_.heads, spec_.hidden / spec_.heads});
    };
    const auto q = ops::rms_norm(by_head(layer.query(y)), *layer.query_norm, spec_.eps),
               k = ops::rms_norm(by_head(layer.key(y)), *layer.key_norm, spec_.eps),
               v = unit_rms(by_head(layer.value(y)), spec_.eps);
    return layer.out(attend_within(by_pairs(q), by_pairs(k), v, 1, turns, places.pictures));
  }

  /// [rows of the decoder, width]: means over squares of patches.
  at::Tensor encode(const PictureValues& pictures, const at::Tensor& anchor) const override {
    const auto places = find_places(pictures.grids, spec_.merge);
    AUTOMODEL_CHECK(std::ssize(places.rows) == pictures.pixels.size(0),
                    "the pixels are those of the pictures' patches");
    auto x = embed(pictures.pixels, places, anchor);
    const auto turns = rotation(places, x);
    for (const auto& layer : layers_) {
      const auto attended = attend(layer, ops::rms_norm(x, *layer.before_attention, spec_.eps), turns, places);
      const auto [sum, z] = ops::add_rms_norm(x, ops::rms_norm(attended, *layer.after_attention, spec_.eps),
                                              *layer.before_mlp, spec_.eps);
      const auto wide = ops::activate(layer.gate(z), ops::Gate::kGeluTanh) * layer.up(z);
      x = sum + ops::rms_norm(layer.down(wide), *layer.after_mlp, spec_.eps);
    }
    const auto type = x.scalar_type(), wide = ops::compute_type(type);  // float16 would not hold what comes next
    const auto means = x.to(wide).view({-1, std::int64_t{spec_.merge} * spec_.merge, spec_.hidden}).mean(1);
    auto rows = means.to(type).to(wide) * std::sqrt(static_cast<double>(spec_.hidden));
    if (bias_ != nullptr) rows = (rows - copied(*bias_, wide)) * copied(*scale_, wide);
    return rows.to(type);
  }

  at::Tensor project(const at::Tensor& x, const at::Tensor& /*anchor*/) const override {
    return ops::linear(unit_rms(x, spec_.eps), projection_);
  }

  arch::VisionSpec spec_;
  ops::Linear patches_ = {};
  ops::Parameter* positions_ = nullptr;
  ops::Parameter *bias_ = nullptr, *scale_ = nullptr;  ///< null: rows are not standardized
  std::vector<Layer> layers_ = {};
  ops::Linear projection_ = {};
};

}  // namespace

std::unique_ptr<const VisionTower> make_gemma4_tower(const arch::VisionSpec& spec, const TowerWeights& weights) {
  return std::make_unique<const Gemma4Tower>(spec, weights);
}

}  // namespace automodel::model
