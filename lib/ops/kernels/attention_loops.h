// Per-row attention work between the GEMMs: online softmax (Milakov and Gimelshein 2018) and its gradient.
#pragma once

#include <cmath>

#include "ops/kernels/exp_loops.h"
#include "ops/kernels/kernels.h"
#include "ops/kernels/rounding.h"

namespace automodel::ops::AUTOMODEL_ISA {
namespace {

// NOLINTBEGIN(readability-function-size): arrays and their sizes
template <class T>
float attention_weights(const float* scores, float scale, SoftmaxRow& row, T* weights, std::int64_t n) {
  float largest = row.largest;
#pragma omp simd reduction(max : largest)
  for (std::int64_t c = 0; c < n; ++c) largest = scale * scores[c] > largest ? scale * scores[c] : largest;
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (std::int64_t c = 0; c < n; ++c) {
    const float weight = fast_exp(scale * scores[c] - largest);
    sum += weight;
    weights[c] = rounded<T>(weight);
  }
  const float factor = fast_exp(row.largest - largest);
  row.sum = row.sum * factor + sum;
  row.largest = largest;
  return factor;
}

template <class T>
void attention_gradient(const float* scores, const float* dweights, float scale, float logsum, float out_dot_dout,
                        T* weights, T* dscores, std::int64_t n) {
  for (std::int64_t c = 0; c < n; ++c) {
    const float weight = fast_exp(scale * scores[c] - logsum);
    weights[c] = rounded<T>(weight);
    dscores[c] = rounded<T>(scale * weight * (dweights[c] - out_dot_dout));
  }
}

template <class T>
float attention_dot(const T* a, const T* b, std::int64_t n) {
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (std::int64_t c = 0; c < n; ++c) sum += static_cast<float>(a[c]) * static_cast<float>(b[c]);
  return sum;
}

template <class T>
void attention_narrow(const float* x, float factor, T* out, std::int64_t n) {
  for (std::int64_t c = 0; c < n; ++c) out[c] = rounded<T>(x[c] * factor);
}

inline void attention_scale(float* x, float factor, std::int64_t n) {
  for (std::int64_t c = 0; c < n; ++c) x[c] *= factor;
}

// NOLINTEND(readability-function-size)

}  // namespace
}  // namespace automodel::ops::AUTOMODEL_ISA
