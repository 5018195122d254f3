// What `slurm` and `k8s` print a job from: the recipe's plan on so many nodes, and the folders that its ranks need.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "config/recipe.h"
#include "estimate/estimated_plan.h"
#include "options.h"

namespace automodel::app {

struct JobPlan {
  config::LoadedRecipe loaded;
  std::optional<estimate::EstimatedPlan> plan = {};  ///< empty: refused, and the reasons are printed
  int exit = 0;                                      ///< of a refusal
  int nodes = 1;
  int per_node = 1;
  int ranks() const { return nodes * per_node; }
};

/// A job is printed only if a plan can be made: it should not wait in a queue only to fail.
JobPlan plan_job(const Options& options);

/// The folders of everything that a rank accesses by path: program (if it has one), recipe, model, data, tokenizers,
/// checkpoints. Folders inside another one, or inside the working directory, are omitted.
std::vector<std::string> named_folders(const config::LoadedRecipe& loaded, const estimate::EstimatedPlan& plan,
                                       const std::string& program);

}  // namespace automodel::app
