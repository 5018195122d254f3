// Dispatch from a tensor's element type to the C++ type of a kernel.
#pragma once

#include <algorithm>
#include <cstdint>

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <c10/util/BFloat16.h>

#include "ops/kernels/device.h"
#include "ops/kernels/kernels.h"

namespace automodel::ops {

static_assert(_OPENMP > 0, "without -fopenmp (which defines _OPENMP), at::parallel_for runs its loop on one thread");

/// float32 for everything but float64.
inline at::ScalarType compute_type(at::ScalarType type) {
  return type == at::kDouble ? at::kDouble : at::kFloat;
}

/// True where the CPU kernels (kernels/kernels.h) support the tensor.
inline bool has_kernel(const at::Tensor& x) {
  return x.is_cpu() && device_kernels(x) == nullptr &&
         (x.scalar_type() == at::kFloat || x.scalar_type() == at::kDouble || x.scalar_type() == at::kBFloat16);
}

/// Calls `run` with a null pointer to the element type: float, double or (for anything else) c10::BFloat16.
template <class Run>
void for_type(at::ScalarType type, Run&& run) {
  if (type == at::kFloat) return run(static_cast<float*>(nullptr));
  if (type == at::kDouble) return run(static_cast<double*>(nullptr));
  return run(static_cast<c10::BFloat16*>(nullptr));
}

/// Picks the member of a kernel family for T, out of those for float, double and bfloat16.
template <class T, class F, class D, class B>
const auto& pick(const F& f, const D& d, const B& b) {
  if constexpr (std::is_same_v<T, float>)
    return f;
  else if constexpr (std::is_same_v<T, double>)
    return d;
  else
    return b;
}

/// Minimum number of matrix rows per task (grain size of at::parallel_for).
inline constexpr std::int64_t kRowsPerTask = 32;

/// Sums over rows are computed in parts, which are then added in order. Their number depends on the rows alone, so that
/// a sum has the same bits for any number of threads.
inline std::int64_t parts_of_sum(std::int64_t rows, std::int64_t least_rows) {
  return std::clamp<std::int64_t>(rows / least_rows, 1, 32);
}

/// Calls run(part, begin, end) for each of `parts` ranges of rows, on all threads.
template <class Run>
void for_parts(std::int64_t rows, std::int64_t parts, const Run& run) {
  at::parallel_for(0, parts, 1, [&](std::int64_t from, std::int64_t to) {
    for (auto part = from; part < to; ++part) run(part, rows * part / parts, rows * (part + 1) / parts);
  });
}

}  // namespace automodel::ops
