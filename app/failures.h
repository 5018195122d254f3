// `automodel plan --failures`: what failures do to a recipe's run.
#pragma once

#include "config/recipe.h"
#include "estimate/estimated_plan.h"
#include "options.h"

namespace automodel::app {

/// Prints one row per number of lost hosts: what train --min-ranks would continue with (estimate/fewer_ranks.h),
/// whether it fits, and how much slower it is; then what failures at the rates of hardware.failures do to the run
/// (estimate/failures.h), and what would help.
int plan_failures(const Options& options, const config::LoadedRecipe& loaded, estimate::PlanRequest request);

}  // namespace automodel::app
