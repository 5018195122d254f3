// A run's progress and estimated time left, on one line.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>

namespace automodel::metrics {

/// Seconds per step, from the times at which steps ended: the mean over the last 50, including everything between them
/// (validation, checkpoints) but not program startup.
class StepPace {
 public:
  void add(double timestamp);
  /// Empty until two steps have ended.
  std::optional<double> seconds_per_step() const;

 private:
  std::deque<double> ends_;
};

/// "120/1000  12% [====>          ] 7 min 40 s left, 0.52 s/step", or as much of it as fits in `columns` - 1 (a full
/// line would wrap); empty if nothing fits. `pace`: seconds per step, if known.
std::string progress_line(std::int64_t done, std::int64_t total, std::optional<double> pace, int columns);

}  // namespace automodel::metrics
