#include "train/tensor_memory.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <iterator>
#include <limits>
#include <map>
#include <mutex>
#include <new>

#include <malloc.h>
#include <sys/mman.h>

#include <ATen/DeviceAccelerator.h>
#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/alignment.h>

namespace automodel::train {
namespace {

class CountingAllocator;

/// PyTorch has one allocator per process, so this is a singleton too.
std::atomic<CountingAllocator*> counting = nullptr;

/// Blocks that glibc maps one by one, so that each allocation would fault in all of its pages again: 60,000 page faults
/// a step with two layers of Llama-3.2-1B's widths. Freed ones are kept for blocks of nearly their size.
class LargeBlocks {
 public:
  static constexpr std::size_t kSmallest = (32 << 20) + 1;           ///< of usable bytes
  static constexpr std::size_t kSmallestRequest = (32 << 20) - 128;  ///< may be mapped, and then has more usable bytes

  /// A kept block of at least `bytes` that wastes at most an eighth; or null.
  void* take(std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    const auto found = blocks_.lower_bound(bytes);
    if (found == blocks_.end() || found->first > bytes + bytes / 8) return nullptr;
    bytes_ -= found->first;
    void* block = found->second;
    blocks_.erase(found);
    return block;
  }
  void keep(void* block, std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    blocks_.emplace(bytes, block);
    bytes_ += bytes;
  }
  /// Gives blocks to `release`, the largest first, until no more than `most` bytes are kept.
  template <class Release>
  void shrink(std::int64_t most, const Release& release) {
    if (static_cast<std::int64_t>(bytes_) <= most) return;
    const std::lock_guard lock(mutex_);
    while (!blocks_.empty() && static_cast<std::int64_t>(bytes_) > most) {
      const auto last = std::prev(blocks_.end());
      bytes_ -= last->first;
      release(last->second);
      blocks_.erase(last);
    }
  }

 private:
  std::mutex mutex_;
  std::multimap<std::size_t, void*> blocks_;
  std::atomic<std::size_t> bytes_ = 0;
};

/// Only advice: a system without huge pages ignores it.
void advise_huge_pages(void* block, std::size_t bytes) {
  constexpr std::uintptr_t kPage = 2 << 20;
  const auto address = reinterpret_cast<std::uintptr_t>(block), begin = (address + kPage - 1) / kPage * kPage;
  const auto end = (address + bytes) / kPage * kPage;
  if (begin < end) madvise(reinterpret_cast<void*>(begin), end - begin, MADV_HUGEPAGE);
}

/// Counts what the C library gives, and keeps large blocks, as many as do not raise the process's peak. One per
/// process, never destroyed, because tensors may outlive main. oneDNN uses raw memory that must be freed given only its
/// data pointer, so sizes come from the C library (malloc_usable_size), and blocks, too: LibTorch's own are from
/// another one (mimalloc) on Arm. A header in front of each block would work as well, but fragmented memory more (a
/// third more process memory when sharded units are allocated and freed).
class CountingAllocator : public c10::Allocator {
 public:
  c10::DataPtr allocate(std::size_t bytes) override {
    if (bytes == 0) return {nullptr, nullptr, &release, c10::Device(c10::DeviceType::CPU)};
    void* block = bytes < LargeBlocks::kSmallestRequest ? nullptr : large_.take(bytes);
    if (block == nullptr) {
      make_room(static_cast<std::int64_t>(bytes));
      if (posix_memalign(&block, c10::gAlignment, bytes) != 0) throw std::bad_alloc();
      if (bytes >= LargeBlocks::kSmallestRequest) advise_huge_pages(block, bytes);
    }
    const auto size = static_cast<std::int64_t>(malloc_usable_size(block));
    const auto now = now_.fetch_add(size, std::memory_order_relaxed) + size;
    raise(peak_, now);
    raise(highest_, now);
    return {block, block, &release, c10::Device(c10::DeviceType::CPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* to, const void* from, std::size_t bytes) const override { default_copy_data(to, from, bytes); }

  std::int64_t take_peak() { return peak_.exchange(now_.load(std::memory_order_relaxed), std::memory_order_relaxed); }

 private:
  static void raise(std::atomic<std::int64_t>& most, std::int64_t now) {
    auto before = most.load(std::memory_order_relaxed);
    while (now > before && !most.compare_exchange_weak(before, now, std::memory_order_relaxed)) continue;
  }

  static void release(void* data) {
    if (data == nullptr) return;
    auto* owner = counting.load();
    const auto size = malloc_usable_size(data);
    owner->now_.fetch_sub(static_cast<std::int64_t>(size), std::memory_order_relaxed);
    if (size >= LargeBlocks::kSmallest)
      owner->large_.keep(data, size);
    else
      std::free(data);
  }

  /// Kept blocks give way, so that they and what is in use never exceed the most that was ever in use.
  void make_room(std::int64_t bytes) {
    const auto room = highest_.load(std::memory_order_relaxed) - now_.load(std::memory_order_relaxed) - bytes;
    large_.shrink(std::max<std::int64_t>(room, 0), [](void* block) { std::free(block); });
  }

  LargeBlocks large_;
  std::atomic<std::int64_t> now_ = 0, peak_ = 0, highest_ = 0;
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
    auto* allocator = new CountingAllocator;
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
