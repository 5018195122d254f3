// Products of matrices on a CPU: which library or kernel computes them is decided here. Those of bfloat16 are summed in
// float32, in one call, on processors with instructions for it; those of float32 have kernels for AVX-512.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>
#include <c10/util/BFloat16.h>

#include "ops/kernels/kernels.h"

namespace automodel::ops {

/// True where this processor multiplies bfloat16 (AVX512-BF16 or AMX) and LibTorch brings a library that does so into
/// float32, or this program a kernel. The same for the whole life of a process, and not measured: ranks on like machines
/// decide alike.
bool has_host_product();

/// out = a^T b where `fresh`, out += a^T b else; false, and nothing done, where at::mm is the better choice: where
/// has_host_product() is false for bfloat16 into float32, where shapes or the processor are others than those for which
/// there are kernels of float32, or `out` has no rows that lie in one piece each. a [n, rows], b [n, columns].
bool host_product(at::Tensor out, bool fresh, const at::Tensor& a, const at::Tensor& b);

/// out [n, columns] = x weight^T of float32; false, and nothing done, where at::mm is the better choice.
bool host_forward(at::Tensor out, const at::Tensor& x, const at::Tensor& weight);

/// out [n, inputs] = dy weight of float32; false, and nothing done, where at::mm is the better choice.
bool host_input_gradient(at::Tensor out, const at::Tensor& dy, const at::Tensor& weight);

/// out [rows, columns] = a [rows, inner] b [inner, columns], or += where not `fresh`. Sizes above 0,
/// has_host_product().
void host_product(float* out, std::int64_t distance, bool fresh, const Lying<c10::BFloat16>& a,
                  const Lying<c10::BFloat16>& b, std::int64_t rows, std::int64_t inner, std::int64_t columns);

}  // namespace automodel::ops
