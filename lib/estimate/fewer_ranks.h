// A recipe on fewer ranks than it was made for.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "config/recipe.h"
#include "estimate/estimated_plan.h"

namespace automodel::estimate {

struct SmallerPlan {
  std::vector<std::string> words = {};  ///< overrides that make it of the recipe: "distributed.dp_size=2"
  EstimatedPlan plan;
  bool same_axes = true;  ///< only the data-parallel size is another
};

struct SmallerRequest {
  PlanRequest plan = {};
  int most = 1, least = 1;  ///< ranks
};

/// The global batch stays, by accumulation. The data-parallel size gives way first, as little as it must; where no such
/// plan fits in memory, the fastest one of a search that does. `whole`: the plan of all ranks. Empty where nothing
/// fits.
std::optional<SmallerPlan> plan_for_fewer(const config::LoadedRecipe& loaded, const EstimatedPlan& whole,
                                          const SmallerRequest& request);

}  // namespace automodel::estimate
