// 4 floats of Arm's Advanced SIMD (NEON); as vectors_avx512.h. Not SVE: the processors of today's servers (Neoverse V2
// and V3, N2) have it 128 bits wide, and the V1, with 256, as many bits a cycle either way.
#pragma once

#include <algorithm>
#include <cstdint>

#include <arm_neon.h>

namespace automodel::ops::AUTOMODEL_ISA {
namespace {

using Floats = float32x4_t;
constexpr std::int64_t kLanes = 4;

/// There are no masked loads: an edge of a matrix goes through memory of a vector's size.
struct Lanes {
  std::int64_t count;
};
inline Lanes lanes(std::int64_t count) {
  return {std::clamp<std::int64_t>(count, 0, kLanes)};
}
inline Floats load(const float* x) {
  return vld1q_f32(x);
}
inline void store(float* to, Floats x) {
  vst1q_f32(to, x);
}
inline Floats load(const float* x, Lanes there) {
  if (there.count == kLanes) return load(x);
  float some[kLanes] = {};  // NOLINT(modernize-avoid-c-arrays)
  std::copy_n(x, there.count, some);
  return load(some);
}
inline void store(float* to, Lanes there, Floats x) {
  if (there.count == kLanes) return store(to, x);
  float some[kLanes];  // NOLINT(modernize-avoid-c-arrays)
  store(some, x);
  std::copy_n(some, there.count, to);
}
inline Floats broadcast(float x) {
  return vdupq_n_f32(x);
}
/// sums + a b, rounded once.
inline Floats add_product(Floats sums, Floats a, Floats b) {
  return vfmaq_f32(sums, a, b);
}

}  // namespace
}  // namespace automodel::ops::AUTOMODEL_ISA
