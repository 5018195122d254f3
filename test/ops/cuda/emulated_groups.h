// LibTorch's grouped product for GPUs, emulated on the CPU's tensors: refuses what the real one refuses or reads
// wrongly, computes what it computes, in float64, and leaves NaN where the real one may leave anything.
#pragma once

#include "ops/grouped_product.h"

namespace automodel::ops {

/// Throws std::logic_error for a call that the real kernels could not take.
GroupedProduct emulated_groups();

/// Calls until now, of all threads.
int grouped_calls();

}  // namespace automodel::ops
