// automodel checkpoint ls|verify|export|import: operations on checkpoints that need no training.
#pragma once

#include "options.h"

namespace automodel::app {

/// Returns the exit code; problems go to standard error.
int run_checkpoint(const Options& options);
/// `checkpoint import` (import_command.cpp).
int import_checkpoint(const Options& options);

}  // namespace automodel::app
