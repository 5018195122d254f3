// `automodel verify`: the recipe's mesh against one rank, on a small model.
#pragma once

#include "base/error.h"
#include "comm/world.h"
#include "config/recipe.h"

namespace automodel::train {

/// Ranks of a verification in one process (as threads) at most.
inline constexpr int kMostThreads = 64;

/// Shrinks the recipe, trains its mesh on the ranks of `world`, trains one rank on rank 0, prints the comparison to
/// standard output on rank 0. Returns kOk, or kRefused where a figure differs. Throws Error where the recipe cannot
/// run.
ExitCode run_verification(const config::LoadedRecipe& recipe, comm::World& world);

/// The same with the recipe's own number of ranks as threads of this process.
ExitCode run_verification_alone(const config::LoadedRecipe& recipe);

}  // namespace automodel::train
