// What a run would find wrong before its first step, found without one: the files that a recipe names.
#pragma once

#include "base/diagnostic.h"
#include "config/recipe.h"
#include "estimate/estimated_plan.h"

namespace automodel::preflight {

/// Looks at data files, tokenizers, chat templates, names and shapes of weights, and the folder of checkpoints. Rows
/// are read where all files of a data set are small; of large ones the first rows are left to the run. Problems are
/// those that the run would report, with their places.
Diagnostics check_files(const config::LoadedRecipe& recipe, const estimate::EstimatedPlan& plan);

}  // namespace automodel::preflight
