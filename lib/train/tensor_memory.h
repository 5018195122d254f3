// How many bytes of tensors a process has on the CPU, now and at most.
#pragma once

#include <cstdint>

namespace automodel::train {

/// Counts every tensor that is allocated on the CPU from now on, in this process. Call once, before the first tensor:
/// tensors from before are not counted, nor when they go.
void count_tensor_memory();

struct TensorMemory {
  std::int64_t now = 0;
  std::int64_t peak = 0;  ///< since counting began
};
/// Zero where nothing is counted. Any thread may ask.
TensorMemory tensor_memory();

}  // namespace automodel::train
