// float GEMM for AVX-512.
#include <cstdint>

#include <immintrin.h>

#include "ops/kernels/kernels.h"
#include "ops/kernels/matmul_tiles.h"

namespace automodel::ops::AUTOMODEL_ISA {
namespace {

struct Float {
  using Number = float;
  static constexpr std::int64_t kNumbers = 1;
  static __m512 multiply_add(__m512 a, __m512 b, __m512 sums) { return _mm512_fmadd_ps(a, b, sums); }
  static __m512 load(const float* x, std::int64_t count) { return _mm512_maskz_loadu_ps(lanes(count), x); }
  static __m512 load_strided(const float* x, std::int64_t /*stride*/, std::int64_t /*rows*/, std::int64_t columns) {
    return load(x, columns);
  }
};

}  // namespace

MatmulKernels<float> float_matmuls();
MatmulKernels<float> float_matmuls() {
  return matmuls<Float>();
}

}  // namespace automodel::ops::AUTOMODEL_ISA
