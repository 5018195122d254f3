// `automodel tokenize`: converts text to ids and back, line by line.
#pragma once

#include "options.h"

namespace automodel::app {

/// Reads JSON strings from standard input, one per line, and prints their ids as JSON arrays; with `decode` the
/// reverse. Stops at the first invalid line and reports its number. Returns the exit code.
int run_tokenize(const Options& options);

}  // namespace automodel::app
