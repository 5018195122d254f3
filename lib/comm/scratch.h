// Memory for what arrives before it is summed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

namespace automodel::comm {

/// Keeps a few returned buffers, because fresh pages cost as much as the sum that is made in them. From any thread.
class ScratchPool : public std::enable_shared_from_this<ScratchPool> {
 public:
  /// At least `bytes`, uninitialised, aligned for every dtype; returns to the pool with its last owner.
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
