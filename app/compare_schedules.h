// `automodel plan --compare-schedules`: the recipe under every available schedule.
#pragma once

#include "config/recipe.h"
#include "estimate/estimated_plan.h"
#include "options.h"

namespace automodel::app {

/// Prints one row per schedule, fastest first, then those that this recipe cannot run, with the reason; with --timeline
/// draws their timelines one below the other. The model is split evenly, ignoring the recipe's own split.
int compare_schedules(const Options& options, const config::LoadedRecipe& loaded, estimate::PlanRequest request);

}  // namespace automodel::app
