// RMSNorm (Zhang and Sennrich 2019), fused with the preceding residual addition.
#pragma once

#include <cmath>

#include "ops/kernels/kernels.h"
#include "ops/kernels/rounding.h"

namespace automodel::ops::AUTOMODEL_ISA {
namespace {

// NOLINTBEGIN(readability-function-size): arrays, their strides and sizes
template <class T>
void norm_forward(const T* x, const T* delta, const T* weight, T* sum, T* y, typename Compute<T>::type* rstd,
                  std::int64_t rows, std::int64_t columns, double eps, double offset) {
  using C = typename Compute<T>::type;
  const C shift = static_cast<C>(offset);
  for (std::int64_t r = 0; r < rows; ++r) {
    const T* row = x + r * columns;
    C squares = 0;
    if (delta != nullptr) {
      const T* other = delta + r * columns;
      T* out = sum + r * columns;
#pragma omp simd reduction(+ : squares)
      for (std::int64_t c = 0; c < columns; ++c) {
        out[c] = rounded<T>(static_cast<C>(row[c]) + static_cast<C>(other[c]));
        const C value = static_cast<C>(out[c]);
        squares += value * value;
      }
      row = out;
    } else {
#pragma omp simd reduction(+ : squares)
      for (std::int64_t c = 0; c < columns; ++c) squares += static_cast<C>(row[c]) * static_cast<C>(row[c]);
    }
    const C scale = C(1) / std::sqrt(squares / static_cast<C>(columns) + static_cast<C>(eps));
    rstd[r] = scale;
    T* out = y + r * columns;
    for (std::int64_t c = 0; c < columns; ++c)
      out[c] = rounded<T>(static_cast<C>(row[c]) * scale * (shift + static_cast<C>(weight[c])));
  }
}

template <class T>
void norm_backward(const T* dy, const T* dsum, const T* x, const T* weight, const typename Compute<T>::type* rstd,
                   T* dx, typename Compute<T>::type* dweight, std::int64_t rows, std::int64_t columns, double offset) {
  using C = typename Compute<T>::type;
  const C shift = static_cast<C>(offset);
  for (std::int64_t r = 0; r < rows; ++r) {
    const T* g = dy + r * columns;
    const T* row = x + r * columns;
    const C scale = rstd[r];
    C dot = 0;
#pragma omp simd reduction(+ : dot)
    for (std::int64_t c = 0; c < columns; ++c)
      dot += static_cast<C>(g[c]) * (shift + static_cast<C>(weight[c])) * static_cast<C>(row[c]);
    const C factor = dot * scale * scale * scale / static_cast<C>(columns);
    T* out = dx + r * columns;
    if (dsum != nullptr) {
      const T* residual = dsum + r * columns;
      for (std::int64_t c = 0; c < columns; ++c) {
        const C gradient = static_cast<C>(g[c]);
        const C value = static_cast<C>(row[c]);
        dweight[c] += gradient * value * scale;
        out[c] = rounded<T>(static_cast<C>(residual[c]) + gradient * (shift + static_cast<C>(weight[c])) * scale -
                            value * factor);
      }
    } else {
      for (std::int64_t c = 0; c < columns; ++c) {
        const C gradient = static_cast<C>(g[c]);
        const C value = static_cast<C>(row[c]);
        dweight[c] += gradient * value * scale;
        out[c] = rounded<T>(gradient * (shift + static_cast<C>(weight[c])) * scale - value * factor);
      }
    }
  }
}

// NOLINTEND(readability-function-size)

}  // namespace
}  // namespace automodel::ops::AUTOMODEL_ISA
