// `automodel plan --failures`: what lost hosts mean for a recipe.
#pragma once

#include "config/recipe.h"
#include "options.h"
#include "plan/training_plan.h"

namespace automodel::app {

/// Prints a row for each number of lost hosts: what train --min-ranks would go on with (plan/fewer_ranks.h), whether it
/// fits, how much slower it is.
int plan_failures(const Options& options, const config::LoadedRecipe& loaded, plan::PlanRequest request);

}  // namespace automodel::app
