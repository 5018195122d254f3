// `automodel plan --failures`: what lost hosts mean for a recipe.
#pragma once

#include "config/recipe.h"
#include "options.h"
#include "plan/training_plan.h"

namespace automodel::app {

/// Prints a row for each number of lost hosts: the mesh that the ranks left can run with the same global batch (the
/// data-parallel size gives way, then accumulation makes up for it), whether it fits, how much slower it is.
int plan_failures(const Options& options, const config::LoadedRecipe& loaded, plan::PlanRequest request);

}  // namespace automodel::app
