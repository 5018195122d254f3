#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/matmul.h>

#include "base/error.h"
#include "model/patch_rows.h"
#include "model/vision_tower.h"
#include "ops/activation.h"
#include "ops/graph.h"
#include "ops/norm.h"

namespace automodel::model {
namespace {

using arch::PatchGrid;
using arch::TowerKind;

/// Where patches are, and their windows. `order` permutes blocks.
struct Places : PatchPlaces {
  std::vector<std::int64_t> windows = {};  ///< patches of each window, in the order of windows
  std::vector<std::int64_t> order = {};    ///< block at each place in the order of windows
};

/// Windows of `side` x `side` blocks, row by row; those at the right and the bottom edge are smaller. Source:
/// get_vision_window_index in transformers 5.23.
void find_windows(const std::vector<PatchGrid>& grids, int merge, int side, Places& out) {
  std::int64_t first = 0;
  for (const auto& grid : grids) {
    const int rows = grid.rows / merge, columns = grid.columns / merge;
    for (int top = 0; top < rows; top += side)
      for (int left = 0; left < columns; left += side) {
        const int bottom = std::min(top + side, rows), right = std::min(left + side, columns);
        for (int y = top; y < bottom; ++y)
          for (int x = left; x < right; ++x) out.order.push_back(first + std::int64_t{y} * columns + x);
        out.windows.push_back(std::int64_t{bottom - top} * (right - left) * merge * merge);
      }
    first += std::int64_t{rows} * columns;
  }
}

at::Tensor indices(const std::vector<std::int64_t>& values, at::Device device) {
  auto out = at::empty({std::ssize(values)}, at::kLong);
  std::copy(values.begin(), values.end(), out.mutable_data_ptr<std::int64_t>());
  return out.to(device);
}

class QwenTower : public VisionTower {
 public:
  QwenTower(const arch::VisionSpec& spec, const Weights& weights)
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
  struct Layer {
    Norm before_attention, before_mlp;
    ops::Linear qkv, out, up, down;  ///< `up` of a gated MLP: gate and up
  };
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
  at::Tensor embed(const PictureValues& pictures, const Places& places, const at::Tensor& anchor) const {
    // A still picture is the same in all frames, so that their weights are summed before the product.
    const auto weight = ops::use(*patches_, anchor).sum(2).flatten(1);
    auto x = at::matmul(pictures.pixels, weight.t());
    if (old_) return x;
    return x + ops::use(*patch_bias_, anchor) + table_rows(pictures.grids, places, anchor).to(x.scalar_type());
  }

  /// Rows of the table of positions, read between its entries so that the table's corners are the picture's. Source:
  /// get_vision_interpolation_indices_and_weights in transformers 5.23.
  at::Tensor table_rows(const std::vector<PatchGrid>& grids, const Places& places, const at::Tensor& anchor) const {
    constexpr int kTaps = 2;
    struct Axis {
      int first = 0, second = 0;
      float share = 0;  ///< of the second
    };
    const auto axis = [&](int place, int size) {
      const float at =
          static_cast<float>(place) * static_cast<float>(spec_.table - 1) / static_cast<float>(std::max(size - 1, 1));
      const float floor = std::floor(at);
      const int first = std::min(static_cast<int>(floor), spec_.table - 1);
      return Axis{first, std::min(first + 1, spec_.table - 1), at - floor};
    };
    std::vector<std::int64_t> entries[kTaps * kTaps];
    std::vector<float> shares[kTaps * kTaps];
    std::size_t patch = 0;
    for (const auto& grid : grids)
      for (std::int64_t i = 0; i < grid.patches(); ++i, ++patch) {
        const auto y = axis(places.rows[patch], grid.rows), x = axis(places.columns[patch], grid.columns);
        const auto add = [&](int tap, int row, int column, float share) {
          entries[tap].push_back(std::int64_t{row} * spec_.table + column);
          shares[tap].push_back(share);
        };
        add(0, y.first, x.first, (1 - y.share) * (1 - x.share));
        add(1, y.first, x.second, (1 - y.share) * x.share);
        add(2, y.second, x.first, y.share * (1 - x.share));
        add(3, y.second, x.second, y.share * x.share);
      }
    const auto table = ops::use(*table_, anchor);
    at::Tensor out;
    for (int tap = 0; tap < kTaps * kTaps; ++tap) {
      auto share = at::empty({std::ssize(shares[tap]), 1}, at::kFloat);
      std::copy(shares[tap].begin(), shares[tap].end(), share.mutable_data_ptr<float>());
      const auto part =
          table.index_select(0, indices(entries[tap], table.device())) * share.to(table.device(), table.scalar_type());
      out = out.defined() ? out + part : part;
    }
    return out;
  }

  /// Each head's first quarter and third quarter rotate by row, the others by column.
  PatchRotation rotation(const Places& places, const at::Tensor& like) const {
    constexpr double kTheta = 10000;
    const int half = spec_.hidden / spec_.heads / 2, quarter = half / 2;
    std::vector<float> frequencies;
    for (int i = 0; i < half; ++i)
      frequencies.push_back(static_cast<float>(std::pow(kTheta, -2.0 * (i % quarter) / half)));
    return rotation_of(places, frequencies, like);
  }

  at::Tensor merged(const at::Tensor& x, const Merger& merger) const {
    const std::int64_t joined = std::int64_t{spec_.hidden} * spec_.merge * spec_.merge;
    const auto y =
        merger.joined ? normed(x.reshape({-1, joined}), merger.norm) : normed(x, merger.norm).reshape({-1, joined});
    return ops::linear(ops::activate(ops::linear(y, merger.first), ops::Gate::kGelu), merger.second);
  }

  PictureRows encode(const PictureValues& pictures, const at::Tensor& anchor) const {
    Places places{find_places(pictures.grids, spec_.merge), {}, {}};
    auto x = embed(pictures, places, anchor);
    AUTOMODEL_CHECK(std::ssize(places.rows) == x.size(0), "the pixels are those of the pictures' patches");
    if (spec_.window > 0) x = by_windows(pictures.grids, x, places);
    const auto turns = rotation(places, x);
    PictureRows out;
    for (std::size_t number = 0; number < layers_.size(); ++number) {
      const auto& layer = layers_[number];
      const auto& whole = spec_.whole_layers;
      const bool windows = spec_.window > 0 && std::find(whole.begin(), whole.end(), number) == whole.end();
      const auto y = normed(x, layer.before_attention);
      const auto attended =
          attend_within(ops::linear(y, layer.qkv), spec_.heads, turns, windows ? places.windows : places.pictures);
      const auto [sum, z] = add_normed(x, ops::linear(attended, layer.out), layer.before_mlp);
      const auto up = ops::linear(z, layer.up);
      x = sum +
          ops::linear(old_ ? ops::gated(up, ops::Gate::kSilu) : ops::activate(up, ops::Gate::kGeluTanh), layer.down);
      for (std::size_t j = 0; j < spec_.deep_layers.size(); ++j)
        if (spec_.deep_layers[j] == static_cast<int>(number)) out.deep.push_back(merged(x, deep_[j]));
    }
    out.rows = merged(x, merger_);
    if (spec_.window > 0) out.rows = out.rows.index_select(0, inverse(places.order, x.device()));
    return out;
  }

  /// Puts blocks into the order of windows.
  at::Tensor by_windows(const std::vector<PatchGrid>& grids, const at::Tensor& x, Places& places) const {
    find_windows(grids, spec_.merge, spec_.window, places);
    const auto block = static_cast<std::size_t>(spec_.merge) * static_cast<std::size_t>(spec_.merge);
    auto ordered = places;
    for (std::size_t at = 0; at < places.order.size(); ++at)
      for (std::size_t i = 0; i < block; ++i) {
        const auto from = static_cast<std::size_t>(places.order[at]) * block + i;
        ordered.rows[at * block + i] = places.rows[from];
        ordered.columns[at * block + i] = places.columns[from];
      }
    places = std::move(ordered);
    return x.view({-1, static_cast<std::int64_t>(block), spec_.hidden})
        .index_select(0, indices(places.order, x.device()))
        .flatten(0, 1);
  }

  static at::Tensor inverse(const std::vector<std::int64_t>& order, at::Device device) {
    std::vector<std::int64_t> out(order.size());
    for (std::size_t at = 0; at < order.size(); ++at)
      out[static_cast<std::size_t>(order[at])] = static_cast<std::int64_t>(at);
    return indices(out, device);
  }

  arch::VisionSpec spec_;
  bool old_;  ///< Qwen2.5: RMSNorm and a gated MLP
  ops::Parameter *patches_ = nullptr, *patch_bias_ = nullptr, *table_ = nullptr;
  std::vector<Layer> layers_ = {};
  Merger merger_ = {};
  std::vector<Merger> deep_ = {};
  bool trained_ = false;
};

}  // namespace

std::unique_ptr<const VisionTower> make_qwen_tower(const arch::VisionSpec& spec, const Weights& weights) {
  return std::make_unique<const QwenTower>(spec, weights);
}

}  // namespace automodel::model
