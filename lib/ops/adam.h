// The optimizer's arithmetic over flat buffers.
#pragma once

#include <ATen/core/Tensor.h>

#include "ops/kernels/kernels.h"

namespace automodel::ops {

/// One Adam or AdamW step. All tensors are contiguous, of one length and type (float32 or float64); `max_square` is
/// undefined without amsgrad.
void adam(at::Tensor value, const at::Tensor& gradient, at::Tensor mean, at::Tensor square, at::Tensor max_square,
          const AdamStep& step);

/// Sum of squares in float64.
double sum_of_squares(const at::Tensor& x);

}  // namespace automodel::ops
