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
  Field<double> factor{"factor", 2.0, "A loss above this many times their median is a spike.", positive};
  Field<BadStepAction> action{
      "action", BadStepAction::kSkip,
      "What happens then: stop, skip the update, or rollback to the newest checkpoint and continue after the step."};
};

/// When a rank is considered slow.
struct SlowRankConfig {
  using IsSection = void;
  Field<double> factor{
      "factor", 1.5,
      "A rank is slow if its own work, without waiting, takes this many times as long as that of the others.",
      positive};
  Field<int> steps{"steps", 20, "Window in steps; ranks exchange their times once per window.", at_least<2>};
};

struct FaultToleranceConfig {
  using IsSection = void;
  Field<int> max_restarts{"max_restarts", 0,
                          "Times that `automodel train` starts the ranks again, from the newest checkpoint, after one "
                          "died, hung or lost its host; not under a launcher of your own.",
                          at_least<0>};
  Field<std::optional<int>> min_ranks{
      "min_ranks", std::nullopt,
      "The fewest ranks that a restart continues with, on the remaining hosts; null: all. Acts where `automodel train "
      "--start-with` names hosts.",
      at_least<1>};
  Field<double> start_minutes{"start_minutes", 10.0,
                              "Minutes until all ranks that `automodel train --start-with` or `--max-restarts` starts "
                              "must have joined; a start "
                              "that takes longer has failed.",
                              positive};
  Field<BadStepAction> on_non_finite{"on_non_finite", BadStepAction::kStop,
                                     "What a loss or gradient that is not finite does: stop the run, skip the update, "
                                     "or rollback to the newest checkpoint and continue after the step."};
  Field<std::optional<LossSpikeConfig>> loss_spike{"loss_spike", std::nullopt,
                                                   "When a loss counts as a spike, and what follows; null: never."};
  Field<std::optional<SlowRankConfig>> slow_rank{
      "slow_rank", SlowRankConfig{},
      "When a rank is named as slow, once, with its host and the phase of the step; null: never."};
  Field<int> max_bad_steps{"max_bad_steps", 10, "Bad steps without a good one between them that stop the run.",
                           at_least<1>};
};

}  // namespace automodel::config
