// Softmax cross-entropy; the gradient overwrites the logits, so that no second matrix of that size is needed.
#pragma once

#include <cmath>
#include <limits>

#include "ops/kernels/exp_loops.h"
#include "ops/kernels/kernels.h"
#include "ops/kernels/rounding.h"

namespace automodel::ops::AUTOMODEL_ISA {
namespace {

// NOLINTBEGIN(readability-function-size): arrays, their strides and sizes
template <class T>
double cross_entropy(T* logits, const std::int64_t* labels, std::int64_t rows, std::int64_t columns,
                     std::int64_t ignore, double scale, bool gradient) {
  using C = typename Compute<T>::type;
  double total = 0;
  for (std::int64_t r = 0; r < rows; ++r) {
    T* row = logits + r * columns;
    if (labels[r] == ignore) {
      if (gradient)
        for (std::int64_t c = 0; c < columns; ++c) row[c] = rounded<T>(0);
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
    for (std::int64_t c = 0; c < columns; ++c) row[c] = rounded<T>(fast_exp(static_cast<C>(row[c]) - largest) * factor);
    row[labels[r]] = rounded<T>(fast_exp(chosen - largest) * factor - static_cast<C>(scale));
  }
  return total;
}

/// Per row: {largest, sum of exp(x - largest), the label's logit or 0}.
template <class T>
void logit_statistics(const T* logits, std::int64_t stride, const std::int64_t* labels, std::int64_t rows,
                      std::int64_t columns, std::int64_t first, typename Compute<T>::type* out) {
  using C = typename Compute<T>::type;
  for (std::int64_t r = 0; r < rows; ++r) {
    const T* row = logits + r * stride;
    C largest = -std::numeric_limits<C>::infinity();
#pragma omp simd reduction(max : largest)
    for (std::int64_t c = 0; c < columns; ++c)
      largest = static_cast<C>(row[c]) > largest ? static_cast<C>(row[c]) : largest;
    C sum = 0;
#pragma omp simd reduction(+ : sum)
    for (std::int64_t c = 0; c < columns; ++c) sum += fast_exp(static_cast<C>(row[c]) - largest);
    const auto label = labels[r] - first;
    out[3 * r] = largest;
    out[3 * r + 1] = sum;
    out[3 * r + 2] = label >= 0 && label < columns ? static_cast<C>(row[label]) : C(0);
  }
}

/// Overwrites logits with exp(x - largest) * factor - scale * onehot; `shares` holds {largest, factor} per row, factor
/// 0 for an ignored row. Columns from `columns` to `stride` become 0.
template <class T>
void logit_gradient(T* logits, std::int64_t stride, const std::int64_t* labels, std::int64_t rows, std::int64_t columns,
                    std::int64_t first, const typename Compute<T>::type* shares, double scale) {
  using C = typename Compute<T>::type;
  for (std::int64_t r = 0; r < rows; ++r) {
    T* row = logits + r * stride;
    const C largest = shares[2 * r], factor = shares[2 * r + 1];
    const auto label = labels[r] - first;
    const bool here = factor != C(0) && label >= 0 && label < columns;
    const C chosen = here ? static_cast<C>(row[label]) : C(0);
    if (factor == C(0))
      for (std::int64_t c = 0; c < columns; ++c) row[c] = rounded<T>(0);
    else
      for (std::int64_t c = 0; c < columns; ++c)
        row[c] = rounded<T>(fast_exp(static_cast<C>(row[c]) - largest) * factor);
    if (here) row[label] = rounded<T>(fast_exp(chosen - largest) * factor - static_cast<C>(scale));
    for (std::int64_t c = columns; c < stride; ++c) row[c] = rounded<T>(0);
  }
}

// NOLINTEND(readability-function-size)

}  // namespace
}  // namespace automodel::ops::AUTOMODEL_ISA
