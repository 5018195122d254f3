// From argv to a command and its options.
#pragma once

#include <span>

#include "commands.h"

namespace automodel::app {

/// Parses the command line and runs the command. Help and version go to standard output, problems to standard error.
/// Returns the exit code.
int run_command_line(int argc, char** argv, std::span<const Command> commands);

}  // namespace automodel::app
