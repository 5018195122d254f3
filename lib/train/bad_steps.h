// Steps that must not update the weights: a non-finite loss or gradient, or a loss far above the recent ones.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "config/fault_tolerance_config.h"

namespace automodel::train {

/// What is wrong with a step, and the action to take.
struct BadStep {
  config::BadStepAction action = config::BadStepAction::kStop;
  bool spike = false;       ///< else a value is not finite
  std::string reason = {};  ///< "loss 9.31 is 4.2 times the median of the last 50 steps"
};

/// Judges by values that are equal on all ranks, so that all ranks decide alike.
class BadStepRule {
 public:
  explicit BadStepRule(const config::FaultToleranceConfig& config = {}) : config_(config) {}

  /// Whether gradients must be checked even if the recipe does not ask for it: if there is an action other than
  /// stopping.
  bool checks_gradients() const { return config_.on_non_finite() != config::BadStepAction::kStop; }
  /// Judges a step by its loss and gradient norm, before the update. Empty for a good step, whose loss then joins the
  /// recent ones. `finite`: neither value is non-finite by the recipe's criteria.
  std::optional<BadStep> judge(double loss, double grad_norm, bool finite);

  /// The losses that spikes are measured against, oldest first. Stored in checkpoints, so that a resumed run judges
  /// like an uninterrupted one.
  std::vector<double> recent() const { return {recent_.begin(), recent_.end()}; }
  void restore(const std::vector<double>& recent);
  /// Copies the count of consecutive bad steps from another rule, so that it survives a rollback.
  void take_count(const BadStepRule& other) { in_a_row_ = other.in_a_row_; }

 private:
  config::FaultToleranceConfig config_;
  std::deque<double> recent_ = {};
  int in_a_row_ = 0;  ///< bad steps since the last good one
};

}  // namespace automodel::train
