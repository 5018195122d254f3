// A run that starts again by itself: the front end stays beside the ranks and, where they end for a cause that may
// pass, starts them anew. They go on from the newest complete checkpoint, as any run does.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "launch/restart_rule.h"
#include "launch/train_command.h"

namespace automodel::launch {

struct Supervision {
  RankJob job = {};
  int max_restarts = 0;
  /// Fills `last_step` and `saved_step` of an attempt that has ended.
  std::function<void(Attempt& attempt)> look = {};
  /// What has changed since the run began and must not (the recipe, the program); empty: nothing.
  std::function<std::string()> changed = {};
  /// Told of each restart, before it, and of the end where the supervisor gives up.
  std::function<void(const Attempt& attempt, const Decision& decision)> note = {};
};

/// Returns the last attempt. The last line on standard error is the cause.
Attempt supervise(const Supervision& supervision);

}  // namespace automodel::launch
