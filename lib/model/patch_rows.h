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

/// Patches by windows of side x side, row by row; those at the right and the bottom edge are smaller.
struct PatchWindows {
  std::vector<std::int64_t> order = {};  ///< the patch at each place in the order of windows
  std::vector<std::int64_t> sizes = {};  ///< patches of each window
  bool operator==(const PatchWindows&) const = default;
};
/// Puts `places` into that order, which keeps patches of a window in theirs. Source: get_vision_window_index in
/// transformers 5.23.
PatchWindows put_in_windows(const std::vector<arch::PatchGrid>& grids, int side, PatchPlaces& places);

at::Tensor indices(const std::vector<std::int64_t>& values, at::Device device);
/// Where each patch is in the order.
std::vector<std::int64_t> inverse(const std::vector<std::int64_t>& order);

/// Rows of a table of side x side positions for each patch, read between its entries: so that the table's corners are
/// the picture's, or with `halves` its edges, beyond which there are zeros. Source:
/// get_vision_interpolation_indices_and_weights in transformers 5.23.
at::Tensor table_rows(const at::Tensor& table, int side, const std::vector<arch::PatchGrid>& grids,
                      const PatchPlaces& places, bool halves);

/// Angles of the rotation by row and column, [patches, rotated width of a head / 2].
struct PatchRotation {
  at::Tensor cos, sin, places;
};
/// The first half of `frequencies` rotates by row, the second by column; entry i turns the pair (i, i + its number) of
/// a head. In the type and on the device of `like`, but at least in float32. `still`: so many in front of them rotate
/// by time, which is 0 in a picture.
PatchRotation rotation_of(const PatchPlaces& places, const std::vector<float>& frequencies, const at::Tensor& like,
                          std::int64_t still = 0);
/// The same where both halves of a head's pairs have the frequencies theta^(-4 i / width): the first half turns by
/// row, the second by column, or with `columns_first` the other way round.
PatchRotation axial_rotation(const PatchPlaces& places, int width, double theta, bool columns_first,
                             const at::Tensor& like);

/// The same by time, row and column, in a third of a head's pairs each; what is left of the head stays as it is.
PatchRotation third_rotation(const PatchPlaces& places, int width, double theta, const at::Tensor& like);

/// Attention of rows to each other within consecutive parts of `sizes` patches; parts of one size that follow each
/// other run together. `qkv`: queries, keys and values [patches, 3 * width], by heads. Returns [patches, width].
at::Tensor attend_within(const at::Tensor& qkv, std::int64_t heads, const PatchRotation& rotation,
                         const std::vector<std::int64_t>& sizes);
/// The same of queries, keys, which it rotates, and values [1, patches, heads, width of a head]. `interleaved`: pairs
/// of neighbours are rotated.
at::Tensor attend_within(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, double scale,
                         const PatchRotation& rotation, const std::vector<std::int64_t>& sizes,
                         bool interleaved = false);

}  // namespace automodel::model
