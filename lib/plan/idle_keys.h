// Keys of a recipe that have no effect because of its other settings.
#pragma once

#include "config/recipe.h"
#include "plan/located.h"

namespace automodel::plan {

class Costs;
struct TrainingPlan;

/// Warns (no-effect) of every key that the recipe gives although its other settings leave it nothing to do, with the
/// reason: one table of key, condition and sentence. Refuses (bad-value) virtual pipeline stages without a pipeline,
/// and patterns of parameters and modules that match none. Needs everything of the plan up to its optimizer.
void check_idle_keys(const config::Recipe& recipe, const TrainingPlan& plan, Costs& costs, Located& report);

/// Warns (no-effect) that the software stack and dispatcher only matter for GPU estimates; for plans for a CPU.
void warn_of_gpu_estimates(const config::HardwareConfig& hardware, Located& report);

}  // namespace automodel::plan
