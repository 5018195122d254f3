// 8 floats of AVX2; as vectors_avx512.h. Arithmetic is the compiler's, which knows these types.
#pragma once

#include <cstdint>

#include <immintrin.h>

namespace automodel::ops::AUTOMODEL_ISA {
namespace {

using Floats = __m256;
constexpr std::int64_t kLanes = 8;

struct Lanes {
  std::int64_t count;
  __m256i mask;
};
inline Lanes lanes(std::int64_t count) {
  const auto some = static_cast<int>(count < 0 ? 0 : count > kLanes ? kLanes : count);
  return {some, _mm256_cmpgt_epi32(_mm256_set1_epi32(some), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7))};
}
inline Floats load(const float* x, Lanes there) {
  return _mm256_maskload_ps(x, there.mask);
}
inline void store(float* to, Lanes there, Floats x) {
  _mm256_maskstore_ps(to, there.mask, x);
}
inline Floats load(const float* x) {
  return _mm256_loadu_ps(x);
}
inline void store(float* to, Floats x) {
  _mm256_storeu_ps(to, x);
}
inline Floats broadcast(float x) {
  return _mm256_set1_ps(x);
}
/// sums + a b, rounded once.
inline Floats add_product(Floats sums, Floats a, Floats b) {
  return _mm256_fmadd_ps(a, b, sums);
}

}  // namespace
}  // namespace automodel::ops::AUTOMODEL_ISA
