// How an exception ends a job.
#pragma once

#include <optional>
#include <string>

#include "base/error.h"

namespace automodel::comm {

struct Ending {
  ExitCode code = ExitCode::kInternal;
  std::string text = {};         ///< the first line is the cause
  std::optional<int> rank = {};  ///< the rank at fault, if that is not the one that throws
};

/// Describes the exception being handled. JobEnded is rethrown, since its rank returns quietly.
Ending ending();

}  // namespace automodel::comm
