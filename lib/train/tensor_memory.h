// Tensor memory of a process: its peak on the CPU or on its GPU, and what becomes of freed host memory.
#pragma once

#include <cstdint>

namespace automodel::train {

/// Keeps freed host memory in the process instead of returning the top of the heap to the kernel, which would have to
/// clear each page again at the next allocation. Zero-bubble schedules hold many tensors until their W action and then
/// free them at once: 2,300 page faults per step at hidden 512. Does nothing if the environment configures
/// glibc's allocator (MALLOC_TRIM_THRESHOLD_, MALLOC_MMAP_THRESHOLD_, MALLOC_TOP_PAD_, GLIBC_TUNABLES). Call it before
/// the first large allocation.
void keep_freed_memory();

/// Starts counting tensors allocated on the CPU in this process, and keeping freed blocks above 32 MiB for blocks of
/// nearly their size, as long as these and what is in use do not exceed the most that was ever in use. Later calls do
/// nothing. Thread-safe. Call it before the first tensor, since what earlier tensors take is not counted.
void count_tensor_memory();

/// Peak bytes since counting began or since the last such call; the peak then restarts from the current amount. Zero if
/// nothing is counted. Thread-safe.
std::int64_t take_tensor_peak();
/// The same for the current accelerator, according to PyTorch's allocator.
std::int64_t take_device_peak();
/// The same, without restarting the peak.
std::int64_t device_peak();

}  // namespace automodel::train
