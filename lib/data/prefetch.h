// Prepares the next item while the previous one is in use.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "base/error.h"

namespace automodel::data {

/// Calls make(first), make(first + 1), ... make(end - 1) on its own thread, one item ahead of the caller. An exception
/// is rethrown by the call of next() that would have returned the item, and by every later one. The destructor waits
/// for at most the one item in progress.
template <class Item>
class Prefetcher {
 public:
  using Make = std::function<Item(std::int64_t index)>;

  Prefetcher(Make make, std::int64_t first, std::int64_t end)
      : make_(std::move(make)), next_(first), end_(end), thread_([this, first] { work(first); }) {}
  Prefetcher(const Prefetcher&) = delete;
  Prefetcher& operator=(const Prefetcher&) = delete;
  ~Prefetcher() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

  /// The next item; blocks until it is ready.
  Item next() {
    std::unique_lock lock(mutex_);
    AUTOMODEL_CHECK(next_ < end_, "there is a next item");
    changed_.wait(lock, [this] { return ready_ || error_; });
    if (error_ && !ready_) std::rethrow_exception(error_);
    Item item = std::move(*ready_);
    ready_.reset();
    ++next_;
    changed_.notify_all();
    return item;
  }

 private:
  void work(std::int64_t index) {
    for (; index < end_; ++index) {
      std::optional<Item> item;
      std::exception_ptr error;
      try {
        item.emplace(make_(index));
      } catch (...) {
        error = std::current_exception();
      }
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return stopping_ || !ready_; });
      if (stopping_) return;
      ready_ = std::move(item);
      error_ = error;
      changed_.notify_all();
      if (error) return;
    }
  }

  Make make_;
  std::int64_t next_;
  const std::int64_t end_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<Item> ready_;
  std::exception_ptr error_ = nullptr;
  bool stopping_ = false;
  std::thread thread_;  ///< last: it must start after the other members are initialized
};

}  // namespace automodel::data
