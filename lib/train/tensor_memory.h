// How many bytes of tensors a process has on the CPU, now and at most.
#pragma once

#include <cstdint>

namespace automodel::train {

/// Counts every tensor that is allocated on the CPU from now on, in this process. Call once, before the first tensor:
/// tensors from before are not counted, nor when they go.
void count_tensor_memory();

struct TensorMemory {
  std::int64_t now = 0;
  std::int64_t peak = 0;  ///< since counting began, or take_tensor_peak
};
/// Zero where nothing is counted. Any thread may ask.
TensorMemory tensor_memory();
/// The peak since the last such call; from now on the peak is counted anew, from what there is now.
std::int64_t take_tensor_peak();

}  // namespace automodel::train
