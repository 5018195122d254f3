#include "train/early_stopping.h"

#include <cmath>

#include <fmt/format.h>

namespace automodel::train {

EarlyStopping::EarlyStopping(const config::StepSchedulerConfig& config, const checkpoint::ValidationTrend& before)
    : patience_(config.early_stopping_patience()), threshold_(config.early_stopping_threshold()), trend_(before) {}

void EarlyStopping::add(double loss) {
  const bool lower = std::isfinite(loss) && (!trend_.lowest || loss < *trend_.lowest);
  // As there, a loss that is lower by less than the threshold still becomes the one to compare with.
  const bool counts = lower && (!trend_.lowest || *trend_.lowest - loss > threshold_);
  if (lower) trend_.lowest = loss;
  trend_.not_lower = counts ? 0 : trend_.not_lower + 1;
}

std::string EarlyStopping::reason() const {
  const auto lowest = trend_.lowest ? fmt::format(" than {:.4f}", *trend_.lowest) : "";
  return fmt::format("the validation loss was not lower{} in {} validation{} (step_scheduler.early_stopping_patience)",
                     lowest, trend_.not_lower, trend_.not_lower == 1 ? "" : "s");
}

}  // namespace automodel::train
