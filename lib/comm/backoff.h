// How to wait for something that only asking can tell: at once for a moment, then politely, then rarely.
#pragma once

#include <algorithm>
#include <chrono>
#include <thread>

#include <sched.h>

namespace automodel::comm {

/// Call pause() between two looks. While there are fewer ranks than cores, the first looks follow each other without a
/// pause (a message between two ranks of a host takes a microsecond); then the core is offered to whoever wants it,
/// which with more ranks than cores is the rank waited for; then the thread sleeps, a little longer each time.
class Backoff {
 public:
  explicit Backoff(bool crowded) : crowded_(crowded) {}

  void pause() {
    ++looks_;
    if (!crowded_ && looks_ < kBusyLooks) return;
    if (looks_ < kBusyLooks + kYields) {
      sched_yield();
      return;
    }
    std::this_thread::sleep_for(sleep_);
    sleep_ = std::min(sleep_ * 2, kLongestSleep);
  }
  /// Something has moved: the next thing may come at once.
  void restart() {
    looks_ = 0;
    sleep_ = kShortestSleep;
  }
  /// True once waiting has become long enough that telling about it costs nothing.
  bool long_wait() const { return looks_ >= kBusyLooks; }

 private:
  static constexpr int kBusyLooks = 200;
  static constexpr int kYields = 2000;
  static constexpr std::chrono::microseconds kShortestSleep{20};
  static constexpr std::chrono::microseconds kLongestSleep{500};
  bool crowded_;
  int looks_ = 0;
  std::chrono::microseconds sleep_ = kShortestSleep;
};

}  // namespace automodel::comm
