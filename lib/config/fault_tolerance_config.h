// What a run does about bad steps and failures. NeMo AutoModel has no such section.
#pragma once

#include <array>
#include <optional>

#include "config/types.h"

namespace automodel::config {

enum class BadStepAction { kStop, kSkip, kRollback };
template <>
struct EnumNames<BadStepAction> {
  using E = BadStepAction;
  static constexpr std::array names = {EnumName<E>{"stop", E::kStop}, EnumName<E>{"skip", E::kSkip},
                                       EnumName<E>{"rollback", E::kRollback}};
};

/// When a loss counts as a spike.
struct LossSpikeConfig {
  using IsSection = void;
  Field<int> window{"window", 50, "Window of recent steps; the rule applies once it is full.", at_least<2>};
  Field<double> factor{"factor", 2.0, "A loss above this many times the window's median is a spike.", positive};
  Field<BadStepAction> action{
      "action", BadStepAction::kSkip,
      "What to do about it: stop, skip the update, or rollback to the newest checkpoint and continue after the step."};
};

/// When a rank is considered slow.
struct SlowRankConfig {
  using IsSection = void;
  Field<double> factor{
      "factor", 1.5,
      "A rank is slow if its own work, without waiting, takes this many times as long as the others' work.", positive};
  Field<int> steps{"steps", 20, "Window in steps; ranks exchange their times once per window.", at_least<2>};
};

struct FaultToleranceConfig {
  using IsSection = void;
  Field<int> max_restarts{"max_restarts", 0,
                          "How many times `automodel train` may restart the ranks from the newest checkpoint after one "
                          "died, hung or lost its host; no effect if your own launcher starts the ranks.",
                          at_least<0>};
  Field<std::optional<int>> min_ranks{"min_ranks", std::nullopt,
                                      "Minimum number of ranks with which a restart continues on the remaining hosts; "
                                      "null: all. Takes effect if `automodel train --start-with` names hosts.",
                                      at_least<1>};
  Field<double> start_minutes{"start_minutes", 10.0,
                              "Minutes within which all ranks that `automodel train` starts must join; a start that "
                              "takes longer counts as failed.",
                              positive};
  Field<BadStepAction> on_non_finite{"on_non_finite", BadStepAction::kStop,
                                     "What to do about a loss or gradient that is not finite: stop the run, skip the "
                                     "update, or rollback to the newest checkpoint and continue after the step."};
  Field<std::optional<LossSpikeConfig>> loss_spike{
      "loss_spike", std::nullopt, "When a loss counts as a spike, and what to do about it; null: never."};
  Field<std::optional<SlowRankConfig>> slow_rank{
      "slow_rank", SlowRankConfig{},
      "When a rank is reported as slow (once, with its host and the phase of the step); null: never."};
  Field<int> max_bad_steps{"max_bad_steps", 10, "Maximum number of consecutive bad steps; one more stops the run.",
                           at_least<1>};
};

}  // namespace automodel::config
