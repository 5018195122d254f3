// How to wait for something that only asking can tell: at once for a moment, then politely, then rarely.
#pragma once

#include <algorithm>
#include <chrono>
#include <thread>

#include <sched.h>

namespace automodel::comm {

/// Call pause() between two looks. While there are no more ranks than cores, looks follow each other at once as long as
/// a large message takes (a small one takes a microsecond; one of 4 MiB needs both sides to look for 800); with more
/// ranks the first looks offer the core to the rank that is waited for; then the thread sleeps between looks, a little
/// longer each time.
class Backoff {
 public:
  explicit Backoff(bool crowded) : crowded_(crowded) {}

  void pause() {
    const auto now = Clock::now();
    if (sleep_ == kNoSleep) {
      if (now - begin_ < (crowded_ ? kAwakeCrowded : kAwake)) {
        if (crowded_) sched_yield();
        return;
      }
      sleep_ = kShortestSleep;
    }
    std::this_thread::sleep_for(sleep_);
    sleep_ = std::min(sleep_ * 2, crowded_ ? kLongestSleepCrowded : kLongestSleep);
  }
  /// Something has moved: the next thing may come at once.
  void restart() {
    begin_ = Clock::now();
    sleep_ = kNoSleep;
  }
  /// True once waiting has become long enough that telling about it costs nothing.
  bool long_wait() const { return sleep_ != kNoSleep; }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::microseconds kAwake{2000};
  static constexpr std::chrono::microseconds kAwakeCrowded{300};
  static constexpr std::chrono::microseconds kNoSleep{0};
  static constexpr std::chrono::microseconds kShortestSleep{20};
  static constexpr std::chrono::microseconds kLongestSleep{100};
  static constexpr std::chrono::microseconds kLongestSleepCrowded{500};
  bool crowded_;
  Clock::time_point begin_ = Clock::now();
  std::chrono::microseconds sleep_ = kNoSleep;
};

}  // namespace automodel::comm
