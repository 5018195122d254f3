// Grouped GEMM: one matmul per group of rows. For experts, each on the tokens routed to it.
#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include "ops/linear.h"
#include "ops/parameter.h"

namespace automodel::ops {

/// Weights of `groups` matmuls of equal shape: a Linear per group, or stacked tensors for all of them.
struct GroupedLinear {
  std::vector<Linear> each = {};
  Parameter* stacked = nullptr;  ///< [groups, in, out]
  Parameter* bias = nullptr;     ///< [groups, out], or null; only with `stacked`
  std::int64_t groups() const;
  std::int64_t outputs() const;
};

/// How many of the rows, sorted by group, belong to each group: known to the host, or only to the device.
struct GroupRows {
  std::vector<std::int64_t> counts = {};  ///< rows per group; empty if `ends` is given
  at::Tensor ends = {};                   ///< int32 [groups] on the device: where each group's rows end
                                          ///< (grouped_product.h)
};
/// `ends` from `counts` (int64 [groups], on the device), without a copy to the host.
GroupRows rows_on_device(const at::Tensor& counts);

/// The one place that decides whether the host needs to know the rows per group. False where the device has a grouped
/// GEMM (grouped_product.h) that can use the layer's weights (which must be present) as stored: bfloat16, addresses and
/// widths multiples of 16 bytes, no adapters or biases per Linear, no operands of another type, and no weight gradients
/// accumulated in float32 inside the GEMM (Parameter::fused_accumulation).
bool needs_counts(const GroupedLinear& layer);

/// x [n, in], sorted by group. Returns [n, out]. Groups without rows add nothing to their gradients. `rows.ends` may be
/// used only if needs_counts(layer) is false.
at::Tensor grouped_linear(const at::Tensor& x, const GroupedLinear& layer, const GroupRows& rows);

}  // namespace automodel::ops
