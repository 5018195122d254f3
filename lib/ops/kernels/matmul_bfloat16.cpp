// bfloat16 GEMM for AVX512-BF16, whose instruction multiplies pairs and accumulates both products.
#include <cstdint>

#include <immintrin.h>

#include "ops/kernels/kernels.h"
#include "ops/kernels/matmul_tiles.h"

namespace automodel::ops::AUTOMODEL_ISA {
namespace {

struct Pair {
  using Number = c10::BFloat16;
  static constexpr std::int64_t kNumbers = 2;
  static Floats multiply_add(Floats a, Floats b, Floats sums) {
    return _mm512_dpbf16_ps(sums, (__m512bh)a, (__m512bh)b);
  }
  static Floats load(const Number* x, std::int64_t count) {
    const auto there = count >= 32 ? ~__mmask32{0} : (__mmask32{1} << count) - 1U;
    return _mm512_castsi512_ps(_mm512_maskz_loadu_epi16(there, x));
  }
  static Floats load_strided(const Number* x, std::int64_t stride, std::int64_t rows, std::int64_t columns) {
    const auto there = lanes(columns).mask;
    const auto first = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(there, x));
    if (rows < 2) return _mm512_castsi512_ps(first);
    const auto second = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(there, x + stride));
    return _mm512_castsi512_ps(_mm512_or_si512(first, _mm512_slli_epi32(second, 16)));
  }
  static void store_rounded(Number* to, Lanes there, Floats sums) {
    _mm256_mask_storeu_epi16(to, there.mask, (__m256i)_mm512_cvtneps_pbh(sums));
  }
};

}  // namespace

MatmulKernels<c10::BFloat16> bfloat16_matmuls();
MatmulKernels<c10::BFloat16> bfloat16_matmuls() {
  return matmuls<Pair>();
}

}  // namespace automodel::ops::AUTOMODEL_ISA
