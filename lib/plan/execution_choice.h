// How microbatches are computed (plan/values/execution.h), from several sections of the recipe.
#pragma once

#include <optional>

#include "base/dtype.h"
#include "config/recipe.h"
#include "plan/located.h"
#include "plan/values/execution.h"

namespace automodel::plan {

/// Context that the options are checked against.
struct ExecutionRequest {
  int pp = 1;  ///< pipeline ranks
  DType compute = DType::kFloat32;
  bool cuda = false;
  std::optional<int> layers = {};  ///< of the model; empty if its sizes are unknown
  bool head_rows_normed = false;   ///< arch::ModelSpec
  bool classifier = false;         ///< the head scores classes
  bool router_biases = true;       ///< the model's routers have correction biases, or its sizes are unknown
};
Execution choose_execution(const config::LoadedRecipe& recipe, const ExecutionRequest& request, Located& report);
/// Parts of layers to recompute. For planning only; rejected if `training`.
RecomputeModules recompute_modules(const config::Recipe& recipe, bool training, Located& report);

}  // namespace automodel::plan
