// automodel checkpoint ls|verify|export: what can be done with checkpoints without training.
#pragma once

#include "options.h"

namespace automodel::app {

/// Returns the exit code; problems go to standard error.
int run_checkpoint(const Options& options);

}  // namespace automodel::app
