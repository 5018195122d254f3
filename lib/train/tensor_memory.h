// Peak tensor memory of a process, on the CPU or on its GPU.
#pragma once

#include <cstdint>

namespace automodel::train {

/// Starts counting tensors allocated on the CPU in this process. Call once, before the first tensor: earlier tensors
/// are not counted, nor is their release.
void count_tensor_memory();

/// Peak bytes since counting began or since the last such call; the peak then restarts from the current amount. Zero if
/// nothing is counted. Thread-safe.
std::int64_t take_tensor_peak();
/// The same for the current accelerator, according to PyTorch's allocator.
std::int64_t take_device_peak();
/// The same, without restarting the peak.
std::int64_t device_peak();

}  // namespace automodel::train
