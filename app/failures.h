// `automodel plan --failures`: the effect of losing hosts on a recipe.
#pragma once

#include "config/recipe.h"
#include "estimate/estimated_plan.h"
#include "options.h"

namespace automodel::app {

/// Prints one row per number of lost hosts: what train --min-ranks would continue with (estimate/fewer_ranks.h),
/// whether it fits, and how much slower it is.
int plan_failures(const Options& options, const config::LoadedRecipe& loaded, estimate::PlanRequest request);

}  // namespace automodel::app
