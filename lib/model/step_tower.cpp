#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/conv2d.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/upsample_bilinear2d.h>

#include "base/error.h"
#include "model/patch_rows.h"
#include "model/vision_tower.h"
#include "ops/graph.h"
#include "ops/norm.h"
#include "ops/split.h"

namespace automodel::model {
namespace {

/// Source: Step3p7VisionModel of transformers 5.23. A picture comes as several squares, each with a grid of its own.
class StepTower : public ProjectedTower {
 public:
  StepTower(const arch::VisionSpec& spec, const TowerWeights& weights)
      : ProjectedTower(weights, {arch::kProjectorModule}, arch::kStepModule), spec_(spec) {
    if (has_tower()) find_tower(std::string(arch::kStepModule));
    if (has_projector()) projector_ = linear({std::string(arch::kProjectorModule)});
  }

 private:
  struct Layer {
    Norm before_attention, before_mlp;
    ops::Linear qkv, out, up, down;
    ops::Parameter *attention_scale, *mlp_scale;  ///< of a branch, by channel
  };
  struct Convolution {
    ops::Parameter *weight = nullptr, *bias = nullptr;
  };

  void find_tower(const std::string& tower) {
    patches_ = named(tower + ".conv1.weight");
    positions_ = named(tower + ".positional_embedding");
    first_norm_ = norm(tower + ".ln_pre");
    for (int layer = 0; layer < spec_.used_layers; ++layer) {
      const auto prefix = fmt::format("{}.transformer.resblocks.{}.", tower, layer);
      ops::Linear qkv;
      qkv.weights = {named(prefix + "attn.in_proj_weight")};
      qkv.biases = {named(prefix + "attn.in_proj_bias")};
      layers_.push_back({norm(prefix + "ln_1"), norm(prefix + "ln_2"), qkv, linear({prefix + "attn.out_proj"}),
                         linear({prefix + "mlp.c_fc"}), linear({prefix + "mlp.c_proj"}), named(prefix + "ls_1.gamma"),
                         named(prefix + "ls_2.gamma")});
    }
    for (auto* each : {&first_, &second_}) {
      const auto name = fmt::format("{}.vit_downsampler{}", tower, each == &first_ ? 1 : 2);
      *each = {named(name + ".weight"), named(name + ".bias")};
    }
  }

  /// The first half of a head's pairs rotates by column, the second by row.
  PatchRotation rotation(const PatchPlaces& places, const at::Tensor& like) const {
    return axial_rotation(places, spec_.hidden / spec_.heads, spec_.theta, true, like);
  }

  /// Learned positions of the patches: of the largest square as they are, of others interpolated.
  at::Tensor positions(const std::vector<arch::PatchGrid>& grids, const at::Tensor& anchor) const {
    const auto table = ops::use(*positions_, anchor);
    const std::int64_t side = spec_.table;
    const auto of = [&](const arch::PatchGrid& grid) {
      if (grid.rows == side && grid.columns == side) return table;
      const auto square = table.view({1, side, side, spec_.hidden}).permute({0, 3, 1, 2});
      const std::array<std::int64_t, 2> size = {grid.rows, grid.columns};
      return at::upsample_bilinear2d(square, size, false).permute({0, 2, 3, 1}).reshape({-1, spec_.hidden});
    };
    std::vector<at::Tensor> out;
    for (std::size_t i = 0; i < grids.size(); ++i)
      out.push_back(i > 0 && grids[i] == grids[i - 1] ? out.back() : of(grids[i]));
    return out.size() == 1 ? out.front() : at::cat(out);
  }

  at::Tensor attend(const Layer& layer, const at::Tensor& y, const PatchRotation& turns,
                    const std::vector<std::int64_t>& sizes) const {
    const std::int64_t width = spec_.hidden / spec_.heads;
    const auto parts = ops::split(ops::linear(y, layer.qkv).unsqueeze(0), {spec_.hidden, spec_.hidden, spec_.hidden});
    const auto by_head = [&](const at::Tensor& x) { return x.unflatten(2, {spec_.heads, width}).contiguous(); };
    const auto out = attend_within(by_head(parts[0]), by_head(parts[1]), by_head(parts[2]),
                                   1 / std::sqrt(static_cast<double>(width)), turns, sizes, true);
    return ops::linear(out, layer.out);
  }

  /// Both convolutions, of squares of one size together.
  at::Tensor reduced(const at::Tensor& x, const std::vector<arch::PatchGrid>& grids, const at::Tensor& anchor) const {
    std::vector<at::Tensor> out;
    std::int64_t first = 0;
    for (auto grid = grids.begin(); grid != grids.end();) {
      const auto end = std::find_if(grid, grids.end(), [&](const auto& each) { return !(each == *grid); });
      const auto count = end - grid, patches = count * grid->patches();
      auto square = x.narrow(0, first, patches).view({count, grid->rows, grid->columns, -1}).permute({0, 3, 1, 2});
      for (const auto* each : {&first_, &second_})
        square = at::conv2d(square, ops::use(*each->weight, anchor), ops::use(*each->bias, anchor), 2, 1);
      out.push_back(square.permute({0, 2, 3, 1}).reshape({-1, spec_.out_width()}));
      first += patches;
      grid = end;
    }
    return out.size() == 1 ? out.front() : at::cat(out);
  }

  /// [rows of the decoder, four times the width].
  at::Tensor encode(const PictureValues& pictures, const at::Tensor& anchor) const override {
    const auto places = find_places(pictures.grids, 1);
    AUTOMODEL_CHECK(std::ssize(places.rows) == pictures.pixels.size(0),
                    "the pixels are those of the pictures' patches");
    auto x = at::matmul(pictures.pixels, ops::use(*patches_, anchor).flatten(1).t());
    x = ops::layer_norm(x + positions(pictures.grids, anchor), first_norm_.weight, first_norm_.bias, spec_.eps);
    const auto turns = rotation(places, x);
    for (const auto& layer : layers_) {
      const auto y = ops::layer_norm(x, layer.before_attention.weight, layer.before_attention.bias, spec_.eps);
      x = x + attend(layer, y, turns, places.pictures) * ops::use(*layer.attention_scale, anchor);
      const auto z = ops::layer_norm(x, layer.before_mlp.weight, layer.before_mlp.bias, spec_.eps);
      const auto up = ops::linear(z, layer.up);
      constexpr double kSlope = 1.702;  // CLIP's stand-in for GELU
      x = x + ops::linear(up * at::sigmoid(up * kSlope), layer.down) * ops::use(*layer.mlp_scale, anchor);
    }
    return reduced(x, pictures.grids, anchor);
  }

  at::Tensor project(const at::Tensor& x, const at::Tensor& /*anchor*/) const override {
    return ops::linear(x, projector_);
  }

  arch::VisionSpec spec_;
  ops::Parameter *patches_ = nullptr, *positions_ = nullptr;
  Norm first_norm_ = {};
  std::vector<Layer> layers_ = {};
  Convolution first_ = {}, second_ = {};
  ops::Linear projector_ = {};
};

}  // namespace

std::unique_ptr<const VisionTower> make_step_tower(const arch::VisionSpec& spec, const TowerWeights& weights) {
  return std::make_unique<const StepTower>(spec, weights);
}

}  // namespace automodel::model
