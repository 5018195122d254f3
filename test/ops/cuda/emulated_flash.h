// LibTorch's fused attention for GPUs, emulated on CPU tensors: rejects calls that the real kernels reject or misread,
// and computes the same results with plain operations in float64.
#pragma once

#include "ops/flash_attention.h"

namespace automodel::ops {

/// They throw std::logic_error for calls that the real kernels do not support.
const FlashKernels* emulated_flash();

/// Calls so far, from all threads.
struct FlashCalls {
  int forward = 0, backward = 0;
  int of_documents = 0;  ///< calls of either kind with `starts` (packed documents)
};
FlashCalls flash_calls();

}  // namespace automodel::ops
