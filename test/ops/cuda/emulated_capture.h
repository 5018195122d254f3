// CUDA graphs emulated on the CPU's tensors: what the dispatcher of ATen and the tables of kernels are asked for while
// work is captured is kept as a list, and a replay runs that list again, on the same memory and without the host's
// code.
//
// As on a GPU, nothing that is captured has an effect: what was written outside is put back. What was allocated in a
// capture is filled with rubbish before each replay. A capture in which the host would wait for the device, or a replay
// that reads memory which the rest of the program has let go of, throws std::logic_error.
#pragma once

#include <functional>
#include <vector>

#include <ATen/core/Tensor.h>

#include "ops/captured_work.h"

namespace automodel::ops {

/// `stays`: tensors outside that kernels may write to, by address.
MakeCapture emulated_capture(std::function<std::vector<at::Tensor>()> stays);

/// Calls that captures of this process saw.
struct CapturedCalls {
  int operations = 0, kernels = 0;
  int waits = 0;  ///< that were refused
};
CapturedCalls captured_calls();

/// Makes the tables of kernels that tests compute with (on_device.cpp) known to captures.
void capture_kernels();

}  // namespace automodel::ops
