// The report of a rank that waited too long: who waits for whom, and what the rank at the end of the chain is doing.
#pragma once

#include <string>
#include <vector>

#include "base/error.h"
#include "comm/activity.h"

namespace automodel::comm {

/// The result of asking a rank what it is doing.
struct Answer {
  enum class Kind {
    kDoing,        ///< it answered
    kGone,         ///< its host refuses the connection: the process is gone
    kUnreachable,  ///< its host cannot be reached
    kSilent,       ///< the connection is accepted but nothing answers: stopped, or its host is overloaded
    kUnknown,      ///< there is no way to ask
  };
  Kind kind = Kind::kUnknown;
  Doing doing = {};
  std::string host = {};
};

/// Queries other ranks of the job without involving their main threads.
class Prober {
 public:
  virtual ~Prober() = default;
  /// What `rank` (a world rank) is doing. Returns within about two seconds.
  virtual Answer ask(int rank) = 0;
};

/// A wait exceeded its deadline. Contains one problem with id `hang`: the message names the rank, what it waited for
/// and the cause found; the help has a line for each rank that was queried.
class HangError : public Error {
 public:
  explicit HangError(Diagnostic problem) : Error(ExitCode::kHang, std::move(problem)) {}
};

/// Follows the chain of waits from rank `me`, which is doing `mine` and lacks messages from the ranks `peers`, until it
/// finds a rank that is not waiting, one that does not answer, or a cycle. Takes at most ten seconds plus the time of
/// one answer.
HangError hang_report(int me, const Doing& mine, const std::vector<int>& peers, Prober& prober);

}  // namespace automodel::comm
