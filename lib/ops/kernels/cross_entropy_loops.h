// Softmax cross-entropy and its gradient in place of the logits: no second matrix of that size.
#pragma once

#include <cmath>
#include <limits>

#include "ops/kernels/exp_loops.h"
#include "ops/kernels/kernels.h"

namespace automodel::ops::AUTOMODEL_ISA {
namespace {

template <class T>
double cross_entropy(T* logits, const std::int64_t* labels, std::int64_t rows, std::int64_t columns,
                     std::int64_t ignore, double scale, bool gradient) {
  using C = typename Compute<T>::type;
  double total = 0;
  for (std::int64_t r = 0; r < rows; ++r) {
    T* row = logits + r * columns;
    if (labels[r] == ignore) {
      if (gradient)
        for (std::int64_t c = 0; c < columns; ++c) row[c] = static_cast<T>(0);
      continue;
    }
    C largest = -std::numeric_limits<C>::infinity();
#pragma omp simd reduction(max : largest)
    for (std::int64_t c = 0; c < columns; ++c)
      largest = static_cast<C>(row[c]) > largest ? static_cast<C>(row[c]) : largest;
    C sum = 0;
#pragma omp simd reduction(+ : sum)
    for (std::int64_t c = 0; c < columns; ++c) sum += fast_exp(static_cast<C>(row[c]) - largest);
    const C chosen = static_cast<C>(row[labels[r]]);
    total += static_cast<double>(largest) - static_cast<double>(chosen) + std::log(static_cast<double>(sum));
    if (!gradient) continue;
    const C factor = static_cast<C>(scale) / sum;
    for (std::int64_t c = 0; c < columns; ++c)
      row[c] = static_cast<T>(fast_exp(static_cast<C>(row[c]) - largest) * factor);
    row[labels[r]] = static_cast<T>(fast_exp(chosen - largest) * factor - static_cast<C>(scale));
  }
  return total;
}

}  // namespace
}  // namespace automodel::ops::AUTOMODEL_ISA
