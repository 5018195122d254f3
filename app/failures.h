// `automodel plan --failures`: what lost hosts mean for a recipe.
#pragma once

#include "config/recipe.h"
#include "estimate/estimated_plan.h"
#include "options.h"

namespace automodel::app {

/// Prints a row for each number of lost hosts: what train --min-ranks would go on with (estimate/fewer_ranks.h),
/// whether it fits, how much slower it is.
int plan_failures(const Options& options, const config::LoadedRecipe& loaded, estimate::PlanRequest request);

}  // namespace automodel::app
