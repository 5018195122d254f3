// A run that restarts automatically: the front end watches the ranks and starts them again if they end for a transient
// cause. They resume from the newest complete checkpoint, as any run does.
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
  /// Fills in `last_step` and `saved_step` of an attempt that has ended.
  std::function<void(Attempt& attempt)> look = {};
  /// What has changed since the run began but must not (the recipe, the program); empty: nothing.
  std::function<std::string()> changed = {};
  /// The checkpoint folder if it has disappeared since the run began, else empty.
  std::function<std::string()> folder_lost = {};
  /// The ranks of the next attempt; empty, with `why` set, if there cannot be one. Unset: the same ranks again.
  std::function<std::optional<RankJob>(std::string& why)> next_job = {};
  /// Called before each restart, and at the end if the supervisor gives up.
  std::function<void(const Attempt& attempt, const Decision& decision, const RankJob& next)> note = {};
};

/// Returns the last attempt. The last line on standard error is its cause.
Attempt supervise(const Supervision& supervision);

}  // namespace automodel::launch
