// Products of rows with the matrix of their group on GPUs, without the host knowing how many rows a group has:
// LibTorch's grouped product. The only seam to it; tests put an emulation on the CPU's tensors in its place.
#pragma once

#include <ATen/core/Tensor.h>

namespace automodel::ops {

/// Rows are sorted by group, and `ends` int32 [groups] says where those of each group end; the last group's end is the
/// number of rows. Either a [rows, in] times b [groups, in, out]: [rows, out]; or a [in, rows], whose columns are
/// contiguous, times b [rows, out]: [groups, in, out], of which the part of a group without rows has any content.
using GroupedProduct = at::Tensor (*)(const at::Tensor& a, const at::Tensor& b, const at::Tensor& ends);

/// For tensors like x, or null: LibTorch's for bfloat16, on the GPUs that its kernels compute on.
GroupedProduct grouped_product(const at::Tensor& x);

/// Whether it takes so many groups.
bool takes_groups(std::int64_t groups);
/// Whether it reads x [..., rows, columns] as it lies: 16 bytes at one time, wherever rows or columns lead it.
bool takes_as_it_lies(const at::Tensor& x);

/// For tests: from now on this computes on the CPU's tensors; null: none does.
void grouped_product_on_host_with(GroupedProduct product);

}  // namespace automodel::ops
