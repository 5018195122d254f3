// Buffers for data that arrives before it is reduced.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

namespace automodel::comm {

/// Keeps a few returned buffers, because faulting in fresh pages costs as much as the sum computed in them.
/// Thread-safe.
class ScratchPool : public std::enable_shared_from_this<ScratchPool> {
 public:
  /// At least `bytes`, uninitialised, aligned for every dtype; returns to the pool when its last owner releases it.
  std::shared_ptr<std::byte[]> take(std::int64_t bytes);

 private:
  struct Buffer {
    std::unique_ptr<std::byte[]> bytes;
    std::int64_t size = 0;
  };
  void give_back(Buffer buffer);

  std::mutex mutex_;
  std::vector<Buffer> free_;
};

}  // namespace automodel::comm
