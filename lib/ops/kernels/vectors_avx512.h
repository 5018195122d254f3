// 16 floats of AVX-512; as vectors_avx2.h. Arithmetic is the compiler's, which knows these types.
#pragma once

#include <cstdint>

#include <immintrin.h>

namespace automodel::ops::AUTOMODEL_ISA {
namespace {

using Floats = __m512;
constexpr std::int64_t kLanes = 16;

/// Which lanes exist, at an edge of a matrix: the first `count`.
struct Lanes {
  std::int64_t count;
  __mmask16 mask;
};
inline Lanes lanes(std::int64_t count) {
  return {count, static_cast<__mmask16>(count >= kLanes ? 0xffff : count <= 0 ? 0 : (1U << count) - 1U)};
}
/// The lanes `there` of x; the others are 0.
inline Floats load(const float* x, Lanes there) {
  return _mm512_maskz_loadu_ps(there.mask, x);
}
/// Writes the lanes `there`.
inline void store(float* to, Lanes there, Floats x) {
  _mm512_mask_storeu_ps(to, there.mask, x);
}
inline Floats load(const float* x) {
  return _mm512_loadu_ps(x);
}
inline void store(float* to, Floats x) {
  _mm512_storeu_ps(to, x);
}
inline Floats broadcast(float x) {
  return _mm512_set1_ps(x);
}
/// sums + a b, rounded once.
inline Floats add_product(Floats sums, Floats a, Floats b) {
  return _mm512_fmadd_ps(a, b, sums);
}

}  // namespace
}  // namespace automodel::ops::AUTOMODEL_ISA
