// A child process's standard error: forwarded as it arrives, with the end kept.
#pragma once

#include <atomic>
#include <optional>
#include <string>
#include <string_view>
#include <thread>

#include "base/error.h"
#include "launch/banner_filter.h"

namespace automodel::launch {

/// A thread of this process reads the pipe. Processes that the child left behind may hold the write end open forever,
/// so reading stops soon after finish() is called rather than when the pipe closes.
class StderrTail {
 public:
  /// Throws Error (environment) if no pipe can be created.
  StderrTail();
  ~StderrTail();
  StderrTail(const StderrTail&) = delete;
  StderrTail& operator=(const StderrTail&) = delete;

  /// In the child: redirects standard error into the pipe.
  void become_stderr() const;
  /// In the parent, once the child exists: starts reading.
  void start();
  /// After the child has ended: the last line in which a rank or one of our programs says why it ended, else the last
  /// non-empty line. Launchers print more afterwards, about the processes that they end in turn.
  std::string finish();
  /// After finish(): whether a rank or one of our programs said why it ended.
  bool explained() const { return explained_; }
  /// After finish(): forwards what the launcher said about the end of its ranks, which is held back until then.
  void show_banners();
  /// Whether the line that finish() returned was the very last one.
  bool cause_was_last() const { return cause_was_last_; }
  /// Whether the ranks have reported that they started (base/rank_marks.h).
  bool ranks_started() const { return ranks_started_; }
  /// Set once the ranks have reported that they are done: the exit code that they are about to return.
  std::optional<ExitCode> ranks_done() const {
    return done_ ? std::optional(stopped_ ? ExitCode::kStopped : ExitCode::kOk) : std::nullopt;
  }

 private:
  void read();
  static void forward(std::string_view text);
  /// Removes the lines of marks from `text`, including what a launcher put before them. If such a line does not end in
  /// `text`, the next call removes the rest.
  void take_marks(std::string& text);

  int reading_ = -1, writing_ = -1;
  std::atomic<bool> ended_ = false, ranks_started_ = false, stopped_ = false, done_ = false;
  bool in_mark_line_ = false;
  std::string tail_ = {};
  bool cause_was_last_ = true, explained_ = false;
  BannerFilter filter_ = {};
  std::thread thread_ = {};
};

}  // namespace automodel::launch
