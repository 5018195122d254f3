// Converts the recipe's optimizer section to an OptimizerPlan.
#pragma once

#include "config/training_config.h"
#include "plan/optimizer_plan.h"

namespace automodel::plan {

/// `hidden`: the model's hidden size, if known.
OptimizerPlan plan_optimizer(const config::OptimizerConfig& config, int hidden = 1);

}  // namespace automodel::plan
