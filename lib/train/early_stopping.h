// The end of a run whose validation loss no longer falls, by the rule of transformers' EarlyStoppingCallback.
#pragma once

#include <optional>
#include <string>

#include "checkpoint/format/run_state.h"
#include "config/training_config.h"

namespace automodel::train {

class EarlyStopping {
 public:
  /// `before`: of the checkpoint that the run resumes from.
  EarlyStopping(const config::StepSchedulerConfig& config, const checkpoint::ValidationTrend& before);

  /// A validation's loss, which is the same on all ranks; one that is not finite is not lower than any.
  void add(double loss);
  /// Whether the run is at its end. Raising the patience lets it go on.
  bool ends() const { return patience_ && trend_.not_lower >= *patience_; }
  /// Why, for people.
  std::string reason() const;
  const checkpoint::ValidationTrend& trend() const { return trend_; }

 private:
  std::optional<int> patience_;
  double threshold_;
  checkpoint::ValidationTrend trend_;
};

}  // namespace automodel::train
