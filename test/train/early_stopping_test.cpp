#include "train/early_stopping.h"

#include <cmath>
#include <limits>
#include <vector>

#include <catch2/catch.hpp>

namespace automodel::train {
namespace {

/// After which of these losses a run ends; 0: it does not.
int ends_after(const std::vector<double>& losses, std::optional<int> patience, double threshold = 0,
               const checkpoint::ValidationTrend& before = {}) {
  config::StepSchedulerConfig config;
  config.early_stopping_patience() = patience;
  config.early_stopping_threshold() = threshold;
  EarlyStopping stopping(config, before);
  for (std::size_t i = 0; i < losses.size(); ++i) {
    stopping.add(losses[i]);
    if (stopping.ends()) return static_cast<int>(i) + 1;
  }
  return 0;
}

}  // namespace

TEST_CASE("a run ends after as many validations without a lower loss as its patience", "[train]") {
  const std::vector<double> losses = {3, 2, 2, 1.5, 1.6, 1.5, 1.7, 1.4};
  CHECK(ends_after(losses, std::nullopt) == 0);
  CHECK(ends_after(losses, 1) == 3);
  CHECK(ends_after(losses, 2) == 6);
  CHECK(ends_after(losses, 3) == 7);
  CHECK(ends_after(losses, 4) == 0);
}

TEST_CASE("a loss must be lower by more than the threshold, as in transformers", "[train]") {
  // Each is lower, but none by more than 0.5 than the one before, which is the lowest.
  CHECK(ends_after({3, 2.6, 2.2, 1.8}, 3, 0.5) == 4);
  CHECK(ends_after({3, 2.6, 2.2, 1.5, 1.4}, 3, 0.5) == 0);
  CHECK(ends_after({3, 2.5}, 1, 0.5) == 2);
}

TEST_CASE("a loss that is not finite is not lower", "[train]") {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  CHECK(ends_after({nan, nan}, 2) == 2);
  CHECK(ends_after({nan, 3, -std::numeric_limits<double>::infinity()}, 1) == 1);
  CHECK(ends_after({3, -std::numeric_limits<double>::infinity(), 2, 3}, 2) == 0);
}

TEST_CASE("the count goes on where a checkpoint left it", "[train]") {
  CHECK(ends_after({1, 1}, 3, 0, {.lowest = 1, .not_lower = 2}) == 1);
  CHECK(ends_after({0.5, 1}, 3, 0, {.lowest = 1, .not_lower = 2}) == 0);
  config::StepSchedulerConfig config;
  config.early_stopping_patience() = 2;
  CHECK(EarlyStopping(config, {.lowest = 1, .not_lower = 2}).ends());
  config.early_stopping_patience() = 3;
  CHECK_FALSE(EarlyStopping(config, {.lowest = 1, .not_lower = 2}).ends());
}

}  // namespace automodel::train
