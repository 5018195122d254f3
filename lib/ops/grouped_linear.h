// One product for each group of rows: experts, each on the tokens that chose it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include <ATen/core/Tensor.h>

#include "ops/linear.h"
#include "ops/parameter.h"

namespace automodel::ops {

/// Weights of `groups` products of one shape: a Linear for each group, or tensors for all of them.
struct GroupedLinear {
  std::vector<Linear> each = {};
  Parameter* stacked = nullptr;  ///< [groups, in, out]
  bool upright = false;          ///< `stacked` is [groups, out, in]
  Parameter* bias = nullptr;     ///< [groups, out], or null; only with `stacked`
  std::int64_t groups() const;
  std::int64_t outputs() const;
};

/// x [n, in], sorted by group: the first rows[0] rows are group 0's, and so on; the sum of `rows` is n. Returns
/// [n, out]. Groups without rows cost nothing and add nothing to their gradients.
at::Tensor grouped_linear(const at::Tensor& x, const GroupedLinear& layer, std::span<const std::int64_t> rows);

}  // namespace automodel::ops
