// A training run on one rank, from the recipe's text to the last line.
#pragma once

#include <functional>

#include "comm/world.h"
#include "config/recipe.h"
#include "metrics/event_stream.h"
#include "schedule/action.h"

namespace automodel::train {

/// Called on a rank before each action of its schedule, for programs that look at a run or disturb it.
using ActionHook = std::function<void(comm::World& world, const schedule::Slot& slot)>;

/// Plans the recipe on this rank, trains, and returns the exit code. Throws Error for what the user, the data or the
/// machine did wrong. `loaded` is what rank 0 read and all ranks parsed alike. Stops after the step in which a
/// StopSignal of the process received something. Rank 0 tells `stream` what happens (null: nobody) but the end; lines
/// for people then go to standard error.
ExitCode run_training(const config::LoadedRecipe& loaded, comm::World& world, const ActionHook& hook = {},
                      metrics::EventStream* stream = nullptr);

}  // namespace automodel::train
