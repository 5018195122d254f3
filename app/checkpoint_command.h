// automodel checkpoint ls|verify|export: operations on checkpoints that need no training.
#pragma once

#include "options.h"

namespace automodel::app {

/// Returns the exit code; problems go to standard error.
int run_checkpoint(const Options& options);

}  // namespace automodel::app
