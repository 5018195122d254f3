// Products of matrices on a CPU: which library or kernel computes them is decided here. Those of bfloat16 are summed in
// float32, in one call, on processors with instructions for it. There are kernels for AVX-512
// (kernels/product_tiles.h).
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>
#include <c10/util/BFloat16.h>

#include "ops/kernels/kernels.h"

namespace automodel::ops {

/// True where sums in float32 of products of T, float or c10::BFloat16, are one call here: for bfloat16 where this
/// processor multiplies it (AVX512-BF16 or AMX) and LibTorch brings a library that does so, or this program a kernel;
/// for float where such a kernel is faster than LibTorch's library. The same for the whole life of a process, and not
/// measured: ranks on like machines decide alike.
template <class T = c10::BFloat16>
bool has_host_product();
/// True where that call is to this program's kernel.
template <class T>
bool has_own_product();

/// out = a^T b where `fresh`, out += a^T b else; false, and nothing done, where at::mm is the better choice: where
/// has_host_product() is false for bfloat16 into float32, where shapes or the processor are others than those for which
/// there are kernels of float32, or `out` has no rows that lie in one piece each. a [n, rows], b [n, columns].
bool host_product(at::Tensor out, bool fresh, const at::Tensor& a, const at::Tensor& b);

/// out [n, columns] = x [n, inner] weight [inner, columns], all of one type; false, and nothing done, where at::mm is
/// the better choice. The weight may be a transposed view.
bool host_product_with_weight(at::Tensor out, const at::Tensor& x, const at::Tensor& weight);

/// out [rows, columns] = a [rows, inner] b [inner, columns], or += where not `fresh`. Sizes above 0,
/// has_host_product<T>().
template <class T>
void host_product(float* out, std::int64_t distance, bool fresh, const Lying<T>& a, const Lying<T>& b,
                  std::int64_t rows, std::int64_t inner, std::int64_t columns);

}  // namespace automodel::ops
