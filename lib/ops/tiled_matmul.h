// GEMM on a CPU by this program's own tiles (kernels/matmul_tiles.h): threads share what they pack, and every operand
// is packed once, or once per 8 MiB of the other one. Which GEMMs run here is decided in host_matmul.cpp.
#pragma once

#include <cstdint>

#include <c10/util/BFloat16.h>

#include "ops/kernels/kernels.h"

namespace automodel::ops {

/// True if this processor has the instructions, for T float or c10::BFloat16.
template <class T>
bool has_tiles();

/// out [rows, columns] = a [rows, inner] b [inner, columns], or += if not `fresh`. Requires sizes above 0 and
/// has_tiles<T>(). Bits of `out` depend neither on the number of threads nor on how rows and columns are sliced.
template <class T>
void tiled_matmul(OutputMatrix<float> out, bool fresh, const MatrixView<T>& a, const MatrixView<T>& b,
                  std::int64_t rows, std::int64_t inner, std::int64_t columns);
/// The same, fresh, each sum rounded once; through strips of float sums if `inner` is above
/// deepest_rounded().
void tiled_matmul(OutputMatrix<c10::BFloat16> out, const MatrixView<c10::BFloat16>& a,
                  const MatrixView<c10::BFloat16>& b, std::int64_t rows, std::int64_t inner, std::int64_t columns);

/// The largest inner dimension of bfloat16 operands that a tile sums without leaving registers.
std::int64_t deepest_rounded();

}  // namespace automodel::ops
