#include "model/patch_rows.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>

#include "ops/attention.h"
#include "ops/rope.h"
#include "ops/split.h"

namespace automodel::model {

PatchPlaces find_places(const std::vector<arch::PatchGrid>& grids, int merge) {
  PatchPlaces out;
  for (const auto& grid : grids) {
    out.pictures.push_back(grid.patches());
    for (int y = 0; y < grid.rows; y += merge)
      for (int x = 0; x < grid.columns; x += merge)
        for (int inner = 0; inner < merge * merge; ++inner) {
          out.rows.push_back(y + inner / merge);
          out.columns.push_back(x + inner % merge);
        }
  }
  return out;
}

PatchWindows put_in_windows(const std::vector<arch::PatchGrid>& grids, int side, PatchPlaces& places) {
  PatchWindows out;
  std::int64_t first = 0;
  for (const auto& grid : grids) {
    const int across = (grid.columns - 1) / side + 1, down = (grid.rows - 1) / side + 1;
    std::vector<std::vector<std::int64_t>> windows(static_cast<std::size_t>(across) * static_cast<std::size_t>(down));
    for (std::int64_t patch = first; patch < first + grid.patches(); ++patch) {
      const auto at = static_cast<std::size_t>(patch);
      windows[static_cast<std::size_t>(places.rows[at] / side * across + places.columns[at] / side)].push_back(patch);
    }
    for (const auto& window : windows) {
      out.order.insert(out.order.end(), window.begin(), window.end());
      out.sizes.push_back(std::ssize(window));
    }
    first += grid.patches();
  }
  const auto ordered = [&](std::vector<int>& values) {
    std::vector<int> moved;
    for (const auto patch : out.order) moved.push_back(values[static_cast<std::size_t>(patch)]);
    values = std::move(moved);
  };
  ordered(places.rows);
  ordered(places.columns);
  return out;
}

at::Tensor indices(const std::vector<std::int64_t>& values, at::Device device) {
  auto out = at::empty({std::ssize(values)}, at::kLong);
  std::copy(values.begin(), values.end(), out.mutable_data_ptr<std::int64_t>());
  return out.to(device);
}

std::vector<std::int64_t> inverse(const std::vector<std::int64_t>& order) {
  std::vector<std::int64_t> out(order.size());
  for (std::size_t at = 0; at < order.size(); ++at)
    out[static_cast<std::size_t>(order[at])] = static_cast<std::int64_t>(at);
  return out;
}

at::Tensor table_rows(const at::Tensor& table, int side, const std::vector<arch::PatchGrid>& grids,
                      const PatchPlaces& places, bool halves) {
  constexpr int kTaps = 2;
  struct Axis {
    std::array<int, kTaps> entries = {};
    std::array<float, kTaps> shares = {};
  };
  const auto axis = [&](int place, int size) {
    const auto index = static_cast<float>(place), length = static_cast<float>(size);
    const float at = halves ? (index + 0.5F) * static_cast<float>(side) / length - 0.5F
                            : index * static_cast<float>(side - 1) / std::max(length - 1, 1.0F);
    const float floor = std::floor(at);
    Axis out;
    for (int tap = 0; tap < kTaps; ++tap) {
      const int entry = static_cast<int>(floor) + tap;
      const auto t = static_cast<std::size_t>(tap);
      out.entries[t] = std::clamp(entry, 0, side - 1);
      out.shares[t] = entry != out.entries[t] ? 0 : tap == 0 ? 1 - (at - floor) : at - floor;
    }
    return out;
  };
  std::array<std::vector<std::int64_t>, kTaps * kTaps> entries;
  std::array<std::vector<float>, kTaps * kTaps> shares;
  std::size_t patch = 0;
  for (const auto& grid : grids)
    for (std::int64_t i = 0; i < grid.patches(); ++i, ++patch) {
      const auto y = axis(places.rows[patch], grid.rows), x = axis(places.columns[patch], grid.columns);
      for (std::size_t tap = 0; tap < entries.size(); ++tap) {
        const auto row = tap / kTaps, column = tap % kTaps;
        entries[tap].push_back(std::int64_t{y.entries[row]} * side + x.entries[column]);
        shares[tap].push_back(y.shares[row] * x.shares[column]);
      }
    }
  at::Tensor out;
  for (std::size_t tap = 0; tap < entries.size(); ++tap) {
    auto share = at::empty({std::ssize(shares[tap]), 1}, at::kFloat);
    std::copy(shares[tap].begin(), shares[tap].end(), share.mutable_data_ptr<float>());
    const auto part =
        table.index_select(0, indices(entries[tap], table.device())) * share.to(table.device(), table.scalar_type());
    out = out.defined() ? out + part : part;
  }
  return out;
}

PatchRotation rotation_of(const PatchPlaces& places, const std::vector<float>& frequencies, const at::Tensor& like,
                          std::int64_t still) {
  const auto half = std::ssize(frequencies), patches = std::ssize(places.rows);
  const auto type = like.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  auto cos = at::empty({patches, half}, at::kDouble), sin = at::empty({patches, half}, at::kDouble);
  double* c = cos.mutable_data_ptr<double>();
  double* s = sin.mutable_data_ptr<double>();
  for (std::int64_t patch = 0; patch < patches; ++patch)
    for (std::int64_t i = 0; i < half; ++i) {
      const auto& axis = i < still + (half - still) / 2 ? places.rows : places.columns;
      const auto angle = i < still ? 0.0F
                                   : static_cast<float>(axis[static_cast<std::size_t>(patch)]) *
                                         frequencies[static_cast<std::size_t>(i)];  // as transformers
      c[patch * half + i] = std::cos(static_cast<double>(angle));
      s[patch * half + i] = std::sin(static_cast<double>(angle));
    }
  const at::Device device = like.device();
  return {cos.to(device, type), sin.to(device, type), at::arange(patches, at::kLong).unsqueeze(0).to(device)};
}

PatchRotation axial_rotation(const PatchPlaces& places, int width, double theta, bool columns_first,
                             const at::Tensor& like) {
  const int half = width / 2, quarter = half / 2;
  std::vector<float> frequencies;
  for (int i = 0; i < half; ++i)
    frequencies.push_back(static_cast<float>(std::pow(theta, -2.0 * (i % quarter) / half)));
  if (!columns_first) return rotation_of(places, frequencies, like);
  auto turned = places;
  std::swap(turned.rows, turned.columns);
  return rotation_of(turned, frequencies, like);
}

PatchRotation third_rotation(const PatchPlaces& places, int width, double theta, const at::Tensor& like) {
  const int third = width / 3 / 2;
  std::vector<float> frequencies;
  for (int i = 0; i < 3 * third; ++i)
    frequencies.push_back(static_cast<float>(std::pow(theta, -1.0 * (i % third) / third)));
  return rotation_of(places, frequencies, like, third);
}

at::Tensor attend_within(const at::Tensor& qkv, std::int64_t heads, const PatchRotation& rotation,
                         const std::vector<std::int64_t>& sizes) {
  const std::int64_t hidden = qkv.size(1) / 3, width = hidden / heads;
  const auto parts = ops::split(qkv.unsqueeze(0), {hidden, hidden, hidden});
  const auto by_head = [&](const at::Tensor& x) { return x.unflatten(2, {heads, width}).contiguous(); };
  return attend_within(by_head(parts[0]), by_head(parts[1]), by_head(parts[2]),
                       1 / std::sqrt(static_cast<double>(width)), rotation, sizes);
}

at::Tensor attend_within(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, double scale,
                         const PatchRotation& rotation, const std::vector<std::int64_t>& sizes, bool interleaved) {
  const std::int64_t heads = q.size(2), width = q.size(3), turns = 2 * rotation.cos.size(1);
  const auto turn = [&](const at::Tensor& x) {
    return ops::rope(x, rotation.cos, rotation.sin, rotation.places, interleaved);
  };
  const auto turned = [&](const at::Tensor& x) {
    if (turns == width) return turn(x);
    const auto parts = ops::split(x, {turns, width - turns});
    return at::cat({turn(parts[0]), parts[1]}, -1);
  };
  const auto turned_q = turned(q), turned_k = turned(k);
  std::vector<at::Tensor> out;
  std::int64_t first = 0;
  for (auto size = sizes.begin(); size != sizes.end();) {
    const auto end = std::find_if(size, sizes.end(), [&](std::int64_t each) { return each != *size; });
    const auto count = end - size;
    const auto part = [&](const at::Tensor& x) {
      return x.narrow(1, first, count * *size).view({count, *size, heads, width});
    };
    out.push_back(ops::attention(part(turned_q), part(turned_k), part(v), {.scale = scale, .causal = false})
                      .reshape({count * *size, heads * width}));
    first += count * *size;
    size = end;
  }
  return out.size() == 1 ? out.front() : at::cat(out);
}

}  // namespace automodel::model
