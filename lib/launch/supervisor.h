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
  /// The folder of checkpoints, where it has gone since the run began; empty: it is there.
  std::function<std::string()> folder_lost = {};
  /// The ranks of the next attempt; empty where there cannot be one, after `why` was filled. Not set: the same again.
  std::function<std::optional<RankJob>(std::string& why)> next_job = {};
  /// Told of each restart, before it, and of the end where the supervisor gives up.
  std::function<void(const Attempt& attempt, const Decision& decision, const RankJob& next)> note = {};
};

/// Returns the last attempt. The last line on standard error is the cause.
Attempt supervise(const Supervision& supervision);

}  // namespace automodel::launch
