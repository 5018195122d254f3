// A training run on one rank, from the recipe to the last line of output.
#pragma once

#include <functional>

#include "comm/world.h"
#include "config/recipe.h"
#include "metrics/event_stream.h"
#include "schedule/action.h"

namespace automodel::train {

/// Called on a rank before each action of its schedule, for programs that observe or disturb a run.
using ActionHook = std::function<void(comm::World& world, const schedule::Slot& slot)>;

/// Plans the recipe on this rank, trains, and returns the exit code. Throws Error for faults of the user, the data or
/// the machine. `loaded` was read by rank 0 and parsed identically by all ranks. Stops after the step in which a
/// StopSignal of the process received a signal. Rank 0 reports events to `stream` (null: none), except for the end;
/// output for people then goes to standard error.
ExitCode run_training(const config::LoadedRecipe& loaded, comm::World& world, const ActionHook& hook = {},
                      metrics::EventStream* stream = nullptr);

}  // namespace automodel::train
