// Finds, without starting a run, what the run would reject before its first step: problems with the files that a recipe
// names.
#pragma once

#include "base/diagnostic.h"
#include "config/recipe.h"
#include "estimate/estimated_plan.h"

namespace automodel::preflight {

/// Checks data files, tokenizers, chat templates, names and shapes of weights, and the checkpoint folder. If a data
/// set's files are small, its rows are read; otherwise reading rows is left to the run. Problems are those that the run
/// would report, with their locations.
Diagnostics check_files(const config::LoadedRecipe& recipe, const estimate::EstimatedPlan& plan);

}  // namespace automodel::preflight
