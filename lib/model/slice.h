// The part of a whole tensor that a rank holds, before data-parallel sharding: as tensor and expert parallelism cut it.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

namespace automodel::model {

/// Ranges along one dimension, in ascending order; no ranges means the whole tensor. A joined projection (qkv, gate and
/// up) is cut within each of its sections, so that a rank may hold several ranges.
struct Slice {
  int dim = 0;
  std::vector<std::pair<std::int64_t, std::int64_t>> ranges = {};  ///< [begin, end)
  /// Padding rows after the ranges, which stay zero, so that all ranks hold equal shapes; dim 0 only.
  std::int64_t filling = 0;

  bool whole() const { return ranges.empty(); }
  bool operator==(const Slice&) const = default;
  /// The shape of the slice of a tensor of shape `full`.
  std::vector<std::int64_t> shape(const std::vector<std::int64_t>& full) const;
};

/// A run of elements that are contiguous both in the slice and in the whole tensor (row-major).
struct Run {
  std::int64_t local;  ///< index of the first in the slice
  std::int64_t full;   ///< index of the first in the whole tensor
  std::int64_t length;
};

/// The runs that make up elements [first, first + count) of the slice of a tensor of shape `full`, in ascending order.
/// Adjacent runs are merged, so that a whole tensor is one run.
std::vector<Run> runs(const Slice& slice, const std::vector<std::int64_t>& full, std::int64_t first,
                      std::int64_t count);

/// Part `part` of `parts` equal parts of each of `sections` of a dimension of `size` elements.
Slice even_slice(int dim, std::int64_t size, int parts, int part, const std::vector<std::int64_t>& sections = {});
/// Rows [`part` * n, `part` * n + n) of `size` rows, n = size / parts rounded up; the last parts may be partly or
/// entirely padding.
Slice filled_slice(std::int64_t size, int parts, int part);

}  // namespace automodel::model
