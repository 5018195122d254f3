// Measures how a rank spends the time of its steps.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace automodel::train {

enum class StepPhase : std::uint8_t {
  kData,       ///< waiting for or loading the next batch
  kCompute,    ///< forward and backward passes
  kGradients,  ///< processing of gradients after those passes
  kOptimizer,
  kWaiting,  ///< waiting for other ranks and their messages, in any phase; excluded from the other phases
};
inline constexpr std::size_t kStepPhases = 5;
/// "data", "compute", "gradients", "optimizer", "waiting".
std::string_view name_of(StepPhase phase);

/// Seconds in each phase.
using PhaseSeconds = std::array<double, kStepPhases>;

/// Collects times over windows of steps, at the cost of a few clock reads per step.
class PhaseClock {
 public:
  explicit PhaseClock(int window) : window_(window) {}

  void begin_step();
  /// Attributes the time since the last call, or since the beginning of the step, to this phase.
  void end(StepPhase phase);
  void end_step();
  /// If the window is full: the median of each phase over its steps, and the next window begins. Empty otherwise. All
  /// ranks count the same steps, so it is full on all of them or on none.
  std::optional<PhaseSeconds> take_window();
  int window() const { return window_; }

 private:
  using Clock = std::chrono::steady_clock;

  int window_;
  bool in_step_ = false;
  Clock::time_point since_ = {};
  double waited_ = 0;  ///< comm::seconds_waited() at that time
  PhaseSeconds step_ = {};
  std::vector<PhaseSeconds> steps_ = {};
};

}  // namespace automodel::train
