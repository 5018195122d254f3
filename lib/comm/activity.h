// What a rank is doing right now, readable while it is busy or stuck.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

namespace automodel::comm {

/// A copy of a rank's activity at one moment.
struct Doing {
  std::int64_t step = -1;     ///< -1: no step has started
  std::string action = {};    ///< such as "2F3"; empty if none has started
  double action_seconds = 0;  ///< since the action (or the step) started
  bool waiting = false;
  std::string verb = {};  ///< the operation that it waits for, such as "all_reduce"
  std::string group = {};
  int peer = -1;  ///< the world rank being waited for; the first if there are several
  double wait_seconds = 0;
};

/// "step 3, action 2F3 (5.1 s)", "before the first step".
std::string place_text(const Doing& doing);

/// Conversion for sending a Doing to another process; empty if the text is not one.
std::string to_wire(const Doing& doing);
std::optional<Doing> doing_from_wire(const std::string& text);

/// One per rank. Written by its worker threads, read by any thread. An update takes 50 ns and never allocates; longer
/// texts are truncated. If several threads wait at once, the most recent wait is shown.
class Activity {
 public:
  void begin_step(std::int64_t step);
  void begin_action(std::string_view action);
  void begin_wait(std::string_view verb, std::string_view group, int peer);
  void end_wait();
  Doing now() const;

 private:
  using Clock = std::chrono::steady_clock;
  template <std::size_t N>
  class ShortText {
   public:
    void assign(std::string_view text) {
      size_ = std::min(text.size(), N);
      std::copy_n(text.data(), size_, bytes_.data());
    }
    std::string_view view() const { return {bytes_.data(), size_}; }

   private:
    std::array<char, N> bytes_ = {};
    std::size_t size_ = 0;
  };

  mutable std::mutex mutex_;
  std::int64_t step_ = -1;
  ShortText<48> action_;
  Clock::time_point action_begin_ = Clock::now();
  bool waiting_ = false;
  ShortText<48> verb_;
  ShortText<48> group_;
  int peer_ = -1;
  Clock::time_point wait_begin_;
};

}  // namespace automodel::comm
