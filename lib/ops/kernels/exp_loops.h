// exp and tanh in a form that compilers vectorize.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

namespace automodel::ops::AUTOMODEL_ISA {
namespace {

/// e^x within 2 ulp for -87 <= x <= 88; 0 below -87. Cephes' polynomial over [-ln2/2, ln2/2].
inline float fast_exp(float x) {
  const float clamped = x < -87.0f ? -87.0f : (x > 88.0f ? 88.0f : x);
  // Rounds to an integer: adding 1.5 * 2^23 leaves no mantissa bits for a fraction.
  const float n = (clamped * 1.44269504088896341f + 12582912.0f) - 12582912.0f;
  const float r = (clamped - n * 0.693359375f) - n * -2.12194440e-4f;
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * r * r + r + 1.0f;
  const auto bits = static_cast<std::uint32_t>(static_cast<std::int32_t>(n) + 127) << 23;
  const float result = p * std::bit_cast<float>(bits);
  return x < -87.0f ? 0.0f : (x != x ? x : result);
}
inline double fast_exp(double x) {
  return std::exp(x);
}

template <class C>
inline C sigmoid(C x) {
  return C(1) / (C(1) + fast_exp(-x));
}
template <class C>
inline C fast_tanh(C x) {
  return C(1) - C(2) / (C(1) + fast_exp(x + x));
}

}  // namespace
}  // namespace automodel::ops::AUTOMODEL_ISA
