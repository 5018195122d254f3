#include "comm/scratch.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace automodel::comm {
namespace {

constexpr std::size_t kMostKept = 16;
constexpr std::int64_t kLargestKept = std::int64_t{16} << 20;

}  // namespace

std::shared_ptr<std::byte[]> ScratchPool::take(std::int64_t bytes) {
  const auto size =
      static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(std::max<std::int64_t>(bytes, 64))));
  Buffer buffer;
  {
    const std::lock_guard lock(mutex_);
    const auto found = std::ranges::find(free_, size, &Buffer::size);
    if (found != free_.end()) {
      buffer = std::move(*found);
      free_.erase(found);
    }
  }
  if (!buffer.bytes) buffer = {std::make_unique_for_overwrite<std::byte[]>(static_cast<std::size_t>(size)), size};
  auto* raw = buffer.bytes.get();
  auto held = std::make_shared<Buffer>(std::move(buffer));
  return {raw, [held, pool = shared_from_this()](std::byte*) { pool->give_back(std::move(*held)); }};
}

void ScratchPool::give_back(Buffer buffer) {
  if (buffer.size > kLargestKept) return;
  const std::lock_guard lock(mutex_);
  if (free_.size() < kMostKept) free_.push_back(std::move(buffer));
}

}  // namespace automodel::comm
