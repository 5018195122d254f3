// Signals that end a run in an orderly way at the end of its step.
#pragma once

#include <vector>

namespace automodel::train {

/// While it lives, the named signals (and SIGUSR1) set a flag instead of ending the process. One a process; loopback
/// ranks share it.
class StopSignal {
 public:
  explicit StopSignal(const std::vector<int>& signals);
  ~StopSignal();
  StopSignal(const StopSignal&) = delete;
  StopSignal& operator=(const StopSignal&) = delete;
  /// The signal that came, or 0.
  static int received();

 private:
  std::vector<int> signals_;
};

}  // namespace automodel::train
