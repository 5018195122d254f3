// Reduces a recipe for verification: the same mesh, schedule, strategy and number of layers, but a tiny model.
#pragma once

#include "config/recipe.h"
#include "plan/training_plan.h"

namespace automodel::plan {

struct Shrunk {
  config::LoadedRecipe mesh;    ///< with the recipe's own mesh
  config::LoadedRecipe single;  ///< the same training on one rank: no parallelism, no sharding
  std::string summary = {};     ///< for display: "hidden 32, 4 heads, ..."
  int steps = 2;
};

/// Reduces widths, vocabulary, sequence length and accumulation steps to the minimum that keeps the recipe's
/// divisibility (by tp, cp, ep, groups of experts); layers, stages, microbatches and all options stay. Computes in
/// float64, without float8, on random tokens, so that any difference is a bug rather than rounding. A model that takes
/// pictures gets rows with random ones, in the words of its own tokenizer and with its own processor: vocabulary and
/// patches stay. `plan` is the recipe's own plan and must have a model.
Shrunk shrink(const config::LoadedRecipe& recipe, const TrainingPlan& plan);

}  // namespace automodel::plan
