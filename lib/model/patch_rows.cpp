#include "model/patch_rows.h"

#include <algorithm>
#include <cmath>

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

PatchRotation rotation_of(const PatchPlaces& places, const std::vector<float>& frequencies, const at::Tensor& like) {
  const auto half = std::ssize(frequencies), patches = std::ssize(places.rows);
  const auto type = like.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  auto cos = at::empty({patches, half}, at::kDouble), sin = at::empty({patches, half}, at::kDouble);
  double* c = cos.mutable_data_ptr<double>();
  double* s = sin.mutable_data_ptr<double>();
  for (std::int64_t patch = 0; patch < patches; ++patch)
    for (std::int64_t i = 0; i < half; ++i) {
      const auto& axis = i < half / 2 ? places.rows : places.columns;
      const auto angle = static_cast<float>(axis[static_cast<std::size_t>(patch)]) *
                         frequencies[static_cast<std::size_t>(i)];  // as transformers
      c[patch * half + i] = std::cos(static_cast<double>(angle));
      s[patch * half + i] = std::sin(static_cast<double>(angle));
    }
  const at::Device device = like.device();
  return {cos.to(device, type), sin.to(device, type), at::arange(patches, at::kLong).unsqueeze(0).to(device)};
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
                         const PatchRotation& rotation, const std::vector<std::int64_t>& sizes) {
  const std::int64_t heads = q.size(2), width = q.size(3);
  const auto turned_q = ops::rope(q, rotation.cos, rotation.sin, rotation.places),
             turned_k = ops::rope(k, rotation.cos, rotation.sin, rotation.places);
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
