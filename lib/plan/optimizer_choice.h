// The recipe's optimizer section as a plan.
#pragma once

#include "config/training_config.h"
#include "plan/optimizer_plan.h"

namespace automodel::plan {

OptimizerPlan plan_optimizer(const config::OptimizerConfig& config);

}  // namespace automodel::plan
