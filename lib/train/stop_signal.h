// Signals that stop a run cleanly at the end of its step.
#pragma once

#include <array>
#include <csignal>
#include <vector>

namespace automodel::train {

/// Records signals that would otherwise end the process, from its start on: one that arrives during setup ends the run
/// after its first step. One object per process; loopback ranks share it.
class StopSignal {
 public:
  /// Handles SIGUSR1, SIGTERM and SIGINT (a second SIGINT ends the process), and unblocks them in case the parent
  /// process blocked them (launch::exec_worker).
  StopSignal();
  /// Restores the default actions.
  ~StopSignal();
  StopSignal(const StopSignal&) = delete;
  StopSignal& operator=(const StopSignal&) = delete;
  /// Call once the recipe has been read: from now on handles only `signals`, SIGUSR1 and SIGINT. Any other signal
  /// handled so far ends the process again, even one that arrived already.
  void watch(const std::vector<int>& signals);
  /// The received signal, or 0.
  static int received();

 private:
  void take(int signal);

  std::array<bool, NSIG> taken_ = {};
};

}  // namespace automodel::train
