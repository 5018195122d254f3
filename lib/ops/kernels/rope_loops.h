// Rotary position embedding, half-split pairs as in Hugging Face's models (Su et al. 2021).
#pragma once

#include "ops/kernels/kernels.h"

namespace automodel::ops::AUTOMODEL_ISA {
namespace {

// NOLINTBEGIN(readability-function-size): arrays, their strides and sizes
template <class T>
void rope_rotate(T* x, std::int64_t row_stride, std::int64_t head_stride, const typename Compute<T>::type* cos,
                 const typename Compute<T>::type* sin, const std::int64_t* position, std::int64_t rows,
                 std::int64_t heads, std::int64_t width, double sign) {
  using C = typename Compute<T>::type;
  const std::int64_t half = width / 2;
  const C turn = static_cast<C>(sign);
  for (std::int64_t r = 0; r < rows; ++r) {
    const C* cosine = cos + position[r] * half;
    const C* sine = sin + position[r] * half;
    for (std::int64_t h = 0; h < heads; ++h) {
      T* first = x + r * row_stride + h * head_stride;
      T* second = first + half;
      for (std::int64_t i = 0; i < half; ++i) {
        const C a = static_cast<C>(first[i]);
        const C b = static_cast<C>(second[i]);
        const C s = turn * sine[i];
        first[i] = static_cast<T>(a * cosine[i] - b * s);
        second[i] = static_cast<T>(b * cosine[i] + a * s);
      }
    }
  }
}

// NOLINTEND(readability-function-size)

}  // namespace
}  // namespace automodel::ops::AUTOMODEL_ISA
