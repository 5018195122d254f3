// `automodel verify --against`: compares a step that another trainer dumped with our own.
#pragma once

#include <optional>
#include <string>

#include "base/error.h"
#include "comm/world.h"

namespace automodel::train {

/// Prints the comparison of the dump in `folder` to standard output, as text or one JSON document. `tolerance`: of
/// relative differences; empty: against::tolerance_for. Returns kOk, or kRefused if something differs, as
/// run_verification. Throws Error for a damaged dump (train/dumped_step.h).
ExitCode run_against(const std::string& folder, std::optional<double> tolerance, bool json, comm::World& world);

}  // namespace automodel::train
