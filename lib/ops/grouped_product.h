// Grouped GEMM on GPUs (rows times the matrix of their group) with row counts known only to the device: LibTorch's. The
// only interface to it; tests replace it by an emulation on CPU tensors.
#pragma once

#include <ATen/core/Tensor.h>

namespace automodel::ops {

/// Rows are sorted by group; `ends` int32 [groups] says where those of each group end, the last end being the number of
/// rows. Either a [rows, in] times b [groups, in, out] gives [rows, out]; or a [in, rows], with contiguous columns,
/// times b [rows, out] gives [groups, in, out], whose content is unspecified for groups without rows.
using GroupedProduct = at::Tensor (*)(const at::Tensor& a, const at::Tensor& b, const at::Tensor& ends);

/// The implementation for tensors like x, or null: LibTorch's for bfloat16, on the GPUs that its kernels support.
GroupedProduct grouped_product(const at::Tensor& x);

/// Whether it supports this many groups.
bool takes_groups(std::int64_t groups);
/// Whether it can read x [..., rows, columns] in place: rows or columns contiguous, address and other strides multiples
/// of 16 bytes.
bool is_readable_in_place(const at::Tensor& x);

/// For tests: from now on CPU tensors use this; null: none.
void grouped_product_on_host_with(GroupedProduct product);

}  // namespace automodel::ops
