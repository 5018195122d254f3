// Patches of pictures of any size as rows of a tower: where they are, how they are rotated, and attention within them.
#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include "arch/vision.h"

namespace automodel::model {

/// Where the patches of a microbatch's pictures are. Patches are in blocks of merge x merge, row by row, which become
/// one row of the decoder.
struct PatchPlaces {
  std::vector<int> rows = {}, columns = {};  ///< of each patch in its picture
  std::vector<std::int64_t> pictures = {};   ///< patches of each picture
};
PatchPlaces find_places(const std::vector<arch::PatchGrid>& grids, int merge);

/// Angles of the rotation by row and column, [patches, width of a head / 2].
struct PatchRotation {
  at::Tensor cos, sin, places;
};
/// The first half of `frequencies` rotates by row, the second by column; entry i turns the pair (i, i + its number) of
/// a head. In the type and on the device of `like`, but at least in float32.
PatchRotation rotation_of(const PatchPlaces& places, const std::vector<float>& frequencies, const at::Tensor& like);

/// Attention of rows to each other within consecutive parts of `sizes` patches; parts of one size that follow each
/// other run together. `qkv`: queries, keys and values [patches, 3 * width], by heads. Returns [patches, width].
at::Tensor attend_within(const at::Tensor& qkv, std::int64_t heads, const PatchRotation& rotation,
                         const std::vector<std::int64_t>& sizes);
/// The same of queries, keys, which it rotates, and values [1, patches, heads, width of a head].
at::Tensor attend_within(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, double scale,
                         const PatchRotation& rotation, const std::vector<std::int64_t>& sizes);

}  // namespace automodel::model
