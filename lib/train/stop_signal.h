// Signals that end a run in an orderly way at the end of its step.
#pragma once

#include <array>
#include <csignal>
#include <vector>

namespace automodel::train {

/// Remembers signals that would end the process, from its start: one that comes while the run is still being set up
/// ends it after its first step. One object a process; loopback ranks share it.
class StopSignal {
 public:
  /// Takes SIGUSR1, SIGTERM and SIGINT (whose second one ends the process), and lets them in where what started this
  /// process held them back (launch::exec_worker).
  StopSignal();
  /// They end the process again.
  ~StopSignal();
  StopSignal(const StopSignal&) = delete;
  StopSignal& operator=(const StopSignal&) = delete;
  /// Once the recipe is read: from now on `signals`, SIGUSR1 and SIGINT. Another that was taken ends the process again,
  /// also one that came already.
  void watch(const std::vector<int>& signals);
  /// The signal that came, or 0.
  static int received();

 private:
  void take(int signal);

  std::array<bool, NSIG> taken_ = {};
};

}  // namespace automodel::train
