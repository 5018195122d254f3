// Ranks as threads of one process: for tests of code built on World, and for single-rank jobs.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "base/error.h"
#include "comm/world.h"

namespace automodel::comm {

/// How a job of threads ended: successfully, or with the first rank that called abort.
struct JobOutcome {
  ExitCode code = ExitCode::kOk;
  int rank = -1;          ///< rank that ended the job
  std::string text = {};  ///< what it reported
  bool ok() const { return code == ExitCode::kOk; }
};

/// Runs `body` on `ranks` threads, each with its own World in the same job, through run_guarded. If one fails, the
/// others end at their next use of a communicator. Messages are not buffered: a send completes when it has been
/// received. By default there is no background progress thread.
JobOutcome run_ranks(int ranks, const std::function<void(World&)>& body,
                     WorldOptions options = {.background_progress = false});

/// The world of a single-rank process. abort() ends the process.
std::unique_ptr<World> open_loopback(const WorldOptions& options);

}  // namespace automodel::comm
