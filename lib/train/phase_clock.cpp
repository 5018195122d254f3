#include "train/phase_clock.h"

#include <algorithm>

#include "base/median.h"
#include "comm/waiting.h"

namespace automodel::train {

std::string_view name_of(StepPhase phase) {
  constexpr std::array<std::string_view, kStepPhases> kNames = {"data", "compute", "gradients", "optimizer", "waiting"};
  return kNames[static_cast<std::size_t>(phase)];
}

void PhaseClock::begin_step() {
  in_step_ = true;
  step_ = {};
  since_ = Clock::now();
  waited_ = comm::seconds_waited();
}

void PhaseClock::end(StepPhase phase) {
  const auto now = Clock::now();
  const double waited = comm::seconds_waited();
  const double waits = waited - waited_;
  step_[static_cast<std::size_t>(StepPhase::kWaiting)] += waits;
  step_[static_cast<std::size_t>(phase)] += std::max(0.0, std::chrono::duration<double>(now - since_).count() - waits);
  since_ = now;
  waited_ = waited;
}

void PhaseClock::end_step() {
  if (!in_step_) return;
  in_step_ = false;
  steps_.push_back(step_);
}

std::optional<PhaseSeconds> PhaseClock::take_window() {
  if (steps_.size() < static_cast<std::size_t>(window_)) return std::nullopt;
  PhaseSeconds out{};
  for (std::size_t phase = 0; phase < kStepPhases; ++phase) {
    std::vector<double> values;
    for (const auto& step : steps_) values.push_back(step[phase]);
    out[phase] = median(std::move(values));
  }
  steps_.clear();
  return out;
}

}  // namespace automodel::train
