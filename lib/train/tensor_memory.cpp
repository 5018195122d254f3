#include "train/tensor_memory.h"

#include <algorithm>
#include <atomic>

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>

namespace automodel::train {
namespace {

/// Passes on to PyTorch's own allocator and counts. One for the process, never destroyed: tensors may outlive main.
class CountingAllocator : public c10::Allocator {
 public:
  explicit CountingAllocator(c10::Allocator* inner) : inner_(inner) {}

  c10::DataPtr allocate(std::size_t bytes) override {
    auto data = inner_->allocate(bytes);
    if (data.get() == nullptr) return data;
    const auto size = static_cast<std::int64_t>(bytes);
    const auto now = now_.fetch_add(size, std::memory_order_relaxed) + size;
    auto peak = peak_.load(std::memory_order_relaxed);
    while (now > peak && !peak_.compare_exchange_weak(peak, now, std::memory_order_relaxed)) continue;
    void* memory = data.get();
    const auto device = data.device();
    return {memory, new Block{std::move(data), size, this}, &release, device};
  }
  c10::DeleterFnPtr raw_deleter() const override { return nullptr; }
  void copy_data(void* to, const void* from, std::size_t bytes) const override { inner_->copy_data(to, from, bytes); }

  std::int64_t take_peak() { return peak_.exchange(now_.load(std::memory_order_relaxed), std::memory_order_relaxed); }

 private:
  struct Block {
    c10::DataPtr data;
    std::int64_t bytes;
    CountingAllocator* owner;
  };
  static void release(void* context) {
    auto* block = static_cast<Block*>(context);
    block->owner->now_.fetch_sub(block->bytes, std::memory_order_relaxed);
    delete block;
  }

  c10::Allocator* inner_;
  std::atomic<std::int64_t> now_ = 0, peak_ = 0;
};

/// PyTorch keeps one allocator a process, so this is one too.
std::atomic<CountingAllocator*> counting = nullptr;

}  // namespace

void count_tensor_memory() {
  if (counting.load() != nullptr) return;
  auto* allocator = new CountingAllocator(c10::GetCPUAllocator());
  counting.store(allocator);
  c10::SetCPUAllocator(allocator, 100);
}

std::int64_t take_tensor_peak() {
  auto* allocator = counting.load();
  return allocator != nullptr ? allocator->take_peak() : 0;
}

}  // namespace automodel::train
