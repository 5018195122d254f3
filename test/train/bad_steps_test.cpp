#include "train/bad_steps.h"

#include <limits>

#include <catch2/catch.hpp>

namespace automodel::train {
namespace {

using config::BadStepAction;
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

config::FaultToleranceConfig with_spikes(int window, double factor) {
  config::FaultToleranceConfig out;
  auto& spike = out.loss_spike().emplace();
  spike.window() = window;
  spike.factor() = factor;
  return out;
}

TEST_CASE("a loss spike is judged against the median of the last steps") {
  BadStepRule rule(with_spikes(4, 2));
  CHECK_FALSE(rule.judge(100, 1, true));  // nothing to compare with yet
  for (const double loss : {3.0, 4.0, 5.0}) CHECK_FALSE(rule.judge(loss, 1, true));
  // The median of 100, 3, 4, 5 is 4.5: an outlier at the beginning does not hide the next one.
  CHECK(rule.judge(9.1, 1, true));
  CHECK_FALSE(rule.judge(9.0, 1, true));
  const auto bad = rule.judge(9.1, 1, true);  // the median of 3, 4, 5, 9 is 4.5 again
  REQUIRE(bad);
  CHECK(bad->spike);
  CHECK(bad->action == BadStepAction::kSkip);
  CHECK(bad->reason == "loss 9.1000 is 2.0 times the median of the last 4 steps");
  // A skipped loss does not count.
  CHECK(rule.recent() == std::vector<double>{3, 4, 5, 9});
}

TEST_CASE("a loss-spike rule continues from its state in a checkpoint") {
  BadStepRule rule(with_spikes(3, 2)), resumed(with_spikes(3, 2));
  for (const double loss : {1.0, 2.0, 3.0}) CHECK_FALSE(rule.judge(loss, 1, true));
  CHECK_FALSE(resumed.judge(50, 1, true));
  resumed.restore(rule.recent());
  CHECK(resumed.judge(50, 1, true));
}

TEST_CASE("non-finite losses follow their own action, up to max_bad_steps") {
  config::FaultToleranceConfig config;
  CHECK_FALSE(BadStepRule(config).checks_gradients());
  CHECK(BadStepRule(config).judge(kNan, 1, false)->action == BadStepAction::kStop);
  config.on_non_finite() = BadStepAction::kSkip;
  config.max_bad_steps() = 2;
  BadStepRule rule(config);
  CHECK(rule.checks_gradients());
  CHECK(rule.judge(kNan, 1, false)->action == BadStepAction::kSkip);
  CHECK_FALSE(rule.judge(1, 1, true));
  for (int i = 0; i < 2; ++i) CHECK(rule.judge(kNan, 1, false)->action == BadStepAction::kSkip);
  BadStepRule other(config);
  other.take_count(rule);
  for (auto* each : {&rule, &other}) {
    const auto last = each->judge(kNan, 1, false);
    CHECK(last->action == BadStepAction::kStop);
    CHECK(last->reason.find("max_bad_steps") != std::string::npos);
  }
}

}  // namespace
}  // namespace automodel::train
