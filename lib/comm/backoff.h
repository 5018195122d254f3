// Backoff for polling: spin briefly, then yield, then sleep.
#pragma once

#include <algorithm>
#include <chrono>
#include <thread>

#include <sched.h>

namespace automodel::comm {

/// Call pause() between polls. With no more ranks than cores it spins for as long as a large message takes (a small one
/// takes a microsecond, but for 4 MiB both sides must poll for 800 us); with more ranks than cores it yields to the
/// rank being waited for. After that it sleeps between polls, a little longer each time.
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
  /// Progress was made, so the next event may follow immediately.
  void restart() {
    begin_ = Clock::now();
    sleep_ = kNoSleep;
  }
  /// True once the wait has been so long that the cost of reporting it is negligible.
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
