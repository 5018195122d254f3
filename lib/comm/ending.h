// What an exception means for a job.
#pragma once

#include <optional>
#include <string>

#include "base/error.h"

namespace automodel::comm {

struct Ending {
  ExitCode code = ExitCode::kInternal;
  std::string text = {};         ///< the first line is the cause
  std::optional<int> rank = {};  ///< that it lies with, where that is not the one that throws
};

/// Of the exception that is being handled. JobEnded goes on: its rank returns quietly.
Ending ending();

}  // namespace automodel::comm
