// One product for each group of rows: experts, each on the tokens that chose it.
#pragma once

#include <cstdint>
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

/// How rows divide that are sorted by group: the host knows it, or the device alone.
struct GroupRows {
  std::vector<std::int64_t> counts = {};  ///< of each group; empty where `ends` says it
  at::Tensor ends = {};                   ///< int32 [groups]: where each group's rows end (grouped_product.h)
};
/// `counts` int64 [groups] of the device stay there.
GroupRows rows_on_device(const at::Tensor& counts);

/// The one place that decides whether the host needs to know the rows of each group. False where the layer's device
/// multiplies groups by itself (grouped_product.h) and the weights, which are here, can be taken as they lie: bfloat16,
/// at places and in widths of 16 bytes, without adapters, gradients summed in float32 inside the product
/// (Parameter::fused_accumulation) or operands of another type.
bool needs_counts(const GroupedLinear& layer);

/// x [n, in], sorted by group. Returns [n, out]. Groups without rows add nothing to their gradients. `rows.ends` only
/// where needs_counts(layer) is false.
at::Tensor grouped_linear(const at::Tensor& x, const GroupedLinear& layer, const GroupRows& rows);

}  // namespace automodel::ops
