// CUDA graphs emulated on CPU tensors: calls to ATen's dispatcher and to the kernel tables are recorded while work is
// captured, and a replay makes the same calls on the same memory, without running the host code.
//
// As on a GPU, a capture itself has no effect: the memory outside that it wrote is restored. Memory allocated during a
// capture is filled with 0xff bytes (NaN) before each replay. A capture in which the host would wait for the device, or
// a replay that uses memory which the rest of the program has freed, throws std::logic_error.
#pragma once

#include <functional>
#include <vector>

#include <ATen/core/Tensor.h>

#include "ops/captured_work.h"

namespace automodel::ops {

/// `stays` returns the tensors outside the capture that kernels may write to by raw address.
MakeCapture emulated_capture(std::function<std::vector<at::Tensor>()> stays);

/// Calls seen by all captures of this process.
struct CapturedCalls {
  int operations = 0, kernels = 0;
  int waits = 0;  ///< refused waits of the host for the device
};
CapturedCalls captured_calls();

/// Wraps the kernel tables that tests compute with (on_device.cpp) so that captures record their calls.
void capture_kernels();

}  // namespace automodel::ops
