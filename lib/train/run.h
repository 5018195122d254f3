// A training run on one rank, from the recipe's text to the last line.
#pragma once

#include <span>
#include <string>

#include "comm/world.h"
#include "config/recipe.h"

namespace automodel::train {

/// Plans the recipe on this rank, trains, and returns the exit code. Throws Error for what the user, the data or the
/// machine did wrong. `loaded` is what rank 0 read and all ranks parsed alike.
ExitCode run_training(const config::LoadedRecipe& loaded, comm::World& world);

}  // namespace automodel::train
