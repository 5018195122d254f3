// `automodel verify`: compares the recipe's mesh with one rank, on a small model.
#pragma once

#include <optional>

#include "base/error.h"
#include "comm/world.h"
#include "config/recipe.h"

namespace automodel::train {

/// Maximum number of ranks in a verification within one process (as threads).
inline constexpr int kMostThreads = 64;

/// Shrinks the recipe, trains its mesh on the ranks of `world` and one rank on rank 0, and prints the comparison to
/// standard output on rank 0. Returns kOk, or kRefused if a figure differs. Throws Error if the recipe cannot run.
/// `json`: one JSON document instead of text.
ExitCode run_verification(const config::LoadedRecipe& recipe, comm::World& world, bool json = false);

/// The same with ranks as threads of this process: as many as given, else as the recipe's sizes say.
ExitCode run_verification_alone(const config::LoadedRecipe& recipe, std::optional<int> ranks = std::nullopt,
                                bool json = false);

}  // namespace automodel::train
