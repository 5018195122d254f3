#include "train/tensor_memory.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <limits>
#include <mutex>

#include <malloc.h>

#include <ATen/DeviceAccelerator.h>
#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>

namespace automodel::train {
namespace {

class CountingAllocator;

/// PyTorch has one allocator per process, so this is a singleton too.
std::atomic<CountingAllocator*> counting = nullptr;

/// Forwards to PyTorch's own allocator, and counts. One per process, never destroyed, because tensors may outlive main.
/// oneDNN uses raw memory that must be freed given only its data pointer, so sizes come from the C library
/// (malloc_usable_size). A header in front of each block would work too, but fragmented memory more (a third more
/// process memory when sharded units are allocated and freed).
class CountingAllocator : public c10::Allocator {
 public:
  explicit CountingAllocator(c10::Allocator* inner) : inner_(inner) {}

  c10::DataPtr allocate(std::size_t bytes) override {
    if (bytes == 0) return inner_->allocate(0);
    void* block = inner_->raw_allocate(bytes);
    const auto size = static_cast<std::int64_t>(malloc_usable_size(block));
    const auto now = now_.fetch_add(size, std::memory_order_relaxed) + size;
    auto peak = peak_.load(std::memory_order_relaxed);
    while (now > peak && !peak_.compare_exchange_weak(peak, now, std::memory_order_relaxed)) continue;
    return {block, block, &release, c10::Device(c10::DeviceType::CPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* to, const void* from, std::size_t bytes) const override { inner_->copy_data(to, from, bytes); }

  std::int64_t take_peak() { return peak_.exchange(now_.load(std::memory_order_relaxed), std::memory_order_relaxed); }

 private:
  static void release(void* data) {
    if (data == nullptr) return;
    auto* owner = counting.load();
    owner->now_.fetch_sub(static_cast<std::int64_t>(malloc_usable_size(data)), std::memory_order_relaxed);
    owner->inner_->raw_deallocate(data);
  }

  c10::Allocator* inner_;
  std::atomic<std::int64_t> now_ = 0, peak_ = 0;
};

}  // namespace

void keep_freed_memory() {
  constexpr std::array kSettings = {"MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "MALLOC_TOP_PAD_",
                                    "GLIBC_TUNABLES"};
  if (std::ranges::any_of(kSettings, [](const char* each) { return std::getenv(each) != nullptr; })) return;
  // Setting one threshold stops glibc from adapting the other. It would raise this one to 32 MiB, its maximum, as
  // blocks of that size are freed; larger blocks are mapped one by one either way.
  mallopt(M_MMAP_THRESHOLD, 32 << 20);
  mallopt(M_TRIM_THRESHOLD, std::numeric_limits<int>::max());
}

void count_tensor_memory() {
  // Ranks that are threads of one process arrive together; a second allocator around the first would release forever.
  static std::once_flag begun;
  std::call_once(begun, [] {
    auto* allocator = new CountingAllocator(c10::GetCPUAllocator());
    counting.store(allocator);
    c10::SetCPUAllocator(allocator, 100);
  });
}

std::int64_t take_tensor_peak() {
  auto* allocator = counting.load();
  return allocator != nullptr ? allocator->take_peak() : 0;
}

std::int64_t device_peak() {
  constexpr auto kAll = static_cast<std::size_t>(c10::CachingAllocator::StatType::AGGREGATE);
  return at::accelerator::getDeviceStats(at::accelerator::getDeviceIndex()).allocated_bytes.at(kAll).peak;
}

std::int64_t take_device_peak() {
  const auto peak = device_peak();
  at::accelerator::resetPeakStats(at::accelerator::getDeviceIndex());
  return peak;
}

}  // namespace automodel::train
