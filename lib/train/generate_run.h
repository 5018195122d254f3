// `automodel generate`: text from a model in a folder, on the ranks of one host.
#pragma once

#include <string>

#include "base/error.h"
#include "comm/world.h"

namespace automodel::train {

/// `request`: config::GenerateRequest as JSON. Prints on rank 0: text as it comes and figures about it on standard
/// error, or one JSON document. Without prompts the text comes from standard input. Throws Error for a folder that
/// cannot be used.
ExitCode run_generation(const std::string& request, comm::World& world);

}  // namespace automodel::train
