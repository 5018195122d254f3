// LibTorch's grouped GEMM for GPUs, emulated on CPU tensors: rejects calls that the real kernels reject or misread,
// computes the same results in float64, and returns NaN where the real result is unspecified.
#pragma once

#include "ops/grouped_product.h"

namespace automodel::ops {

/// It throws std::logic_error for calls that the real kernels do not support.
GroupedProduct emulated_groups();

/// Calls so far, from all threads.
int grouped_calls();

}  // namespace automodel::ops
