// One pass of Adam (Kingma and Ba 2015; Loshchilov and Hutter 2019) over a flat buffer, gradient scaling included.
#pragma once

#include <cmath>

#include "ops/kernels/kernels.h"

namespace automodel::ops::AUTOMODEL_ISA {
namespace {

// NOLINTBEGIN(readability-function-size): arrays, their strides and sizes
template <class T>
void adam(T* value, const T* gradient, T* mean, T* square, T* max_square, std::int64_t n, const AdamStep& step) {
  const T beta1 = static_cast<T>(step.beta1), beta2 = static_cast<T>(step.beta2);
  const T rest1 = static_cast<T>(1 - step.beta1), rest2 = static_cast<T>(1 - step.beta2);
  const T scale = static_cast<T>(step.maximize ? -step.gradient_scale : step.gradient_scale);
  const T shrink = static_cast<T>(step.decoupled ? 1 - step.lr * step.weight_decay : 1);
  const T penalty = static_cast<T>(step.decoupled ? 0 : step.weight_decay);
  const T rate = static_cast<T>(step.lr / step.correction1);
  const T root = static_cast<T>(1 / std::sqrt(step.correction2));
  const T eps = static_cast<T>(step.eps);
  if (max_square == nullptr) {
    for (std::int64_t i = 0; i < n; ++i) {
      const T g = gradient[i] * scale + penalty * value[i];
      mean[i] = beta1 * mean[i] + rest1 * g;
      square[i] = beta2 * square[i] + rest2 * g * g;
      value[i] = value[i] * shrink - rate * mean[i] / (std::sqrt(square[i]) * root + eps);
    }
    return;
  }
  for (std::int64_t i = 0; i < n; ++i) {
    const T g = gradient[i] * scale + penalty * value[i];
    mean[i] = beta1 * mean[i] + rest1 * g;
    square[i] = beta2 * square[i] + rest2 * g * g;
    max_square[i] = square[i] > max_square[i] ? square[i] : max_square[i];
    value[i] = value[i] * shrink - rate * mean[i] / (std::sqrt(max_square[i]) * root + eps);
  }
}

template <class T>
double sum_of_squares(const T* x, std::int64_t n) {
  constexpr std::int64_t kBlock = 4096;  // block sums in T, their total in double
  double total = 0;
  for (std::int64_t begin = 0; begin < n; begin += kBlock) {
    const std::int64_t end = begin + kBlock < n ? begin + kBlock : n;
    T part = 0;
#pragma omp simd reduction(+ : part)
    for (std::int64_t i = begin; i < end; ++i) part += x[i] * x[i];
    total += static_cast<double>(part);
  }
  return total;
}

// NOLINTEND(readability-function-size)

}  // namespace
}  // namespace automodel::ops::AUTOMODEL_ISA
