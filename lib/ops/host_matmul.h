// GEMM on a CPU: the choice between libraries and our own tiles (tiled_matmul.h). bfloat16 operands
// are accumulated in float32 in one call on processors with instructions for it.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>
#include <c10/util/BFloat16.h>

#include "ops/kernels/kernels.h"

namespace automodel::ops {

/// True if a GEMM of T (float or c10::BFloat16) accumulated in float32 is one call here. For bfloat16: we have
/// a kernel, or the processor multiplies it (AMX) and LibTorch ships a library that uses this. For float: our kernel is
/// faster than LibTorch's library. Fixed for the process and derived from the processor, never from timings,
/// so that ranks on identical machines decide alike.
template <class T = c10::BFloat16>
bool has_host_matmul();
/// True if that call goes to our own kernel.
template <class T>
bool has_own_matmul();

/// out = a^T b if `fresh`, otherwise out += a^T b; a [n, rows], b [n, columns]. Returns false, having done nothing,
/// where at::mm should be used instead: unless all are float32, with a shape and processor that our float32 kernels are
/// for, or a and b are bfloat16, `out` is float32 with contiguous rows, and has_host_matmul().
bool host_matmul(at::Tensor out, bool fresh, const at::Tensor& a, const at::Tensor& b);

/// out [n, columns] = x [n, inner] weight [inner, columns], all of one type; the weight may be a transposed view.
/// Returns false, having done nothing, where at::mm should be used instead.
bool host_matmul_with_weight(at::Tensor out, const at::Tensor& x, const at::Tensor& weight);

/// out [rows, columns] = a [rows, inner] b [inner, columns], or += if not `fresh`; rows of `out` are `stride`
/// elements apart. Requires sizes above 0 and has_host_matmul<T>().
template <class T>
void host_matmul(float* out, std::int64_t stride, bool fresh, const MatrixView<T>& a, const MatrixView<T>& b,
                 std::int64_t rows, std::int64_t inner, std::int64_t columns);

}  // namespace automodel::ops
