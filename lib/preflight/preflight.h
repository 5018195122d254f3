// Finds, without starting a run, what the run would reject before its first step: problems with the files that a recipe
// names.
#pragma once

#include <cstdint>
#include <optional>

#include "base/diagnostic.h"
#include "config/recipe.h"
#include "estimate/estimated_plan.h"

namespace automodel::preflight {

/// Checks data files, tokenizers, chat templates, names and shapes of weights, and the checkpoint folder. If a data
/// set's files are small, its rows are read; otherwise reading rows is left to the run. Problems are those that the run
/// would report, with their locations.
Diagnostics check_files(const config::LoadedRecipe& recipe, const estimate::EstimatedPlan& plan);

/// Tokens of the training data's longest row, which the lengths that a plan assumes come from; empty if the data is not
/// here, cannot be read, or is too large to read in passing.
std::optional<std::int64_t> longest_row(const config::LoadedRecipe& recipe, const estimate::EstimatedPlan& plan);

}  // namespace automodel::preflight
