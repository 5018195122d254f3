// Decides whether a run that has ended is restarted automatically.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "base/problem_id.h"

namespace automodel::launch {

/// How one attempt of a run ended.
struct Attempt {
  int code = 0;                                 ///< as a shell reports it: 128 + signal for a killed rank
  bool told_to_stop = false;                    ///< by a signal to the supervisor
  int ranks = 1;                                ///< number of ranks in this attempt
  std::optional<std::int64_t> last_step = {};   ///< last step that this attempt finished; none: it never finished one
  std::optional<std::int64_t> saved_step = {};  ///< step of the newest complete checkpoint when it ended
  std::string cause = {};                       ///< the last line that it wrote to standard error
};

enum class Next {
  kEnd,      ///< finished, stopped by a user, a cause that a restart cannot fix, or restarts are off
  kRestart,  ///< start again, from the newest complete checkpoint
  kGiveUp,   ///< another attempt would fail as the last two did, or no restarts are left
};

struct Decision {
  Next next = Next::kEnd;
  std::chrono::seconds pause{0};     ///< before the next attempt
  std::optional<ProblemId> id = {};  ///< of the error, if the supervisor gives up
  std::string message = {};          ///< why, for the user
};

/// Whether the cause behind an exit code may be transient: a killed rank, a hang, the environment. Excludes errors that
/// follow from the recipe alone (2, 3, 11) and orderly ends (0, 10, Ctrl-C).
bool may_pass(int code);

/// `attempts` so far; the last one has just ended. Two consecutive attempts on the same number of ranks that reach the
/// same last step without a new checkpoint make no progress: the cause is in the run, and more restarts would only hide
/// it.
Decision decide(std::span<const Attempt> attempts, int max_restarts);

}  // namespace automodel::launch
