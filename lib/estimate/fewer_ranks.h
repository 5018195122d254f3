// Plans a recipe for fewer ranks than it was written for.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "config/recipe.h"
#include "estimate/estimated_plan.h"

namespace automodel::estimate {

struct SmallerPlan {
  std::vector<std::string> words = {};  ///< overrides that turn the recipe into this plan: "distributed.dp_size=2"
  EstimatedPlan plan;
  bool same_axes = true;  ///< only the data-parallel size differs
};

struct SmallerRequest {
  PlanRequest plan = {};
  int most = 1, least = 1;  ///< ranks
};

/// Keeps the global batch by gradient accumulation. First reduces the data-parallel size, as little as possible; if no
/// such plan fits in memory, searches for the fastest plan that does. `whole`: the plan for all ranks. Empty if nothing
/// fits.
std::optional<SmallerPlan> plan_for_fewer(const config::LoadedRecipe& loaded, const EstimatedPlan& whole,
                                          const SmallerRequest& request);

}  // namespace automodel::estimate
