// `automodel generate`: generates text with a model in a folder, on the ranks of one host.
#pragma once

#include <string>

#include "base/error.h"
#include "comm/world.h"

namespace automodel::train {

/// `request`: config::GenerateRequest as JSON. Rank 0 prints text as it is generated, with statistics on standard
/// error, or one JSON document. Without prompts, reads one from standard input. Throws Error for an unusable folder.
ExitCode run_generation(const std::string& request, comm::World& world);

}  // namespace automodel::train
