// Rows copied to several places, and summed from there: how tokens reach their experts and come back. Both directions,
// and both gradients, are gathers; autograd's gradient of a gather adds rows one by one, on GPUs in any order.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

namespace automodel::ops {

/// n rows, each copied k times; a permutation if k is 1.
struct RowCopies {
  at::Tensor source = {};  ///< int64 [n k]: the row that each copy is of
  at::Tensor places = {};  ///< int64 [n k]: where the copies of each row are, row by row
  bool defined() const { return source.defined(); }
  /// The opposite permutation; k must be 1.
  RowCopies inverse() const { return {places, source}; }
};
/// The permutation with these sources.
RowCopies permutation(const at::Tensor& source);

/// x [n, width] -> [n k, width]. The gradient sums each row's copies in order, in float32 for 16-bit types.
at::Tensor copied_rows(const at::Tensor& x, const RowCopies& copies);
/// x [n k, width] -> [n, width], the sum of each row's copies, as above; with `weights` [n, k], of x's type, each copy
/// times its weight.
at::Tensor summed_rows(const at::Tensor& x, const RowCopies& copies, std::int64_t k, const at::Tensor& weights = {});

}  // namespace automodel::ops
