// The standard error of a program that is being run: passed on as it comes, its end kept.
#pragma once

#include <atomic>
#include <string>
#include <thread>

namespace automodel::launch {

/// The reading end is a thread of this process. What the program started and left behind may hold the writing end open
/// for ever, so reading ends soon after finish() is called, not with the pipe.
class StderrTail {
 public:
  /// Throws Error (environment) where there can be no pipe.
  StderrTail();
  ~StderrTail();
  StderrTail(const StderrTail&) = delete;
  StderrTail& operator=(const StderrTail&) = delete;

  /// In the child: what it writes to standard error goes through here.
  void become_stderr() const;
  /// In the parent, once the child is there.
  void start();
  /// After the child has ended: the last line that is not empty.
  std::string finish();

 private:
  void read();

  int reading_ = -1, writing_ = -1;
  std::atomic<bool> ended_ = false;
  std::string tail_ = {};
  std::thread thread_ = {};
};

}  // namespace automodel::launch
