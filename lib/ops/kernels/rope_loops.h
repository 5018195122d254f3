// Rotary position embedding (Su et al. 2021), with pairs split across the halves of a head, as in most Hugging Face
// models, or of neighbours.
#pragma once

#include "ops/kernels/kernels.h"
#include "ops/kernels/rounding.h"

namespace automodel::ops::AUTOMODEL_ISA {
namespace {

// NOLINTBEGIN(readability-function-size): arrays, their strides and sizes
/// Pair i consists of elements `step` * i and `step` * i + `apart` of a head.
template <class T, std::int64_t step>
void rope_rotate_with(T* x, std::int64_t row_stride, std::int64_t head_stride, const typename Compute<T>::type* cos,
                      const typename Compute<T>::type* sin, const std::int64_t* position, std::int64_t rows,
                      std::int64_t heads, std::int64_t width, double sign) {
  using C = typename Compute<T>::type;
  const std::int64_t half = width / 2, apart = step == 1 ? half : 1;
  const C direction = static_cast<C>(sign);
  for (std::int64_t r = 0; r < rows; ++r) {
    const C* cosine = cos + position[r] * half;
    const C* sine = sin + position[r] * half;
    for (std::int64_t h = 0; h < heads; ++h) {
      T* first = x + r * row_stride + h * head_stride;
      T* second = first + apart;
#pragma omp simd
      for (std::int64_t i = 0; i < half; ++i) {
        const C a = static_cast<C>(first[step * i]);
        const C b = static_cast<C>(second[step * i]);
        const C s = direction * sine[i];
        first[step * i] = rounded<T>(a * cosine[i] - b * s);
        second[step * i] = rounded<T>(b * cosine[i] + a * s);
      }
    }
  }
}

// NOLINTEND(readability-function-size)

}  // namespace
}  // namespace automodel::ops::AUTOMODEL_ISA
