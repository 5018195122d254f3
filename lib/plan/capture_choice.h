// Decides whether microbatches are captured as CUDA graphs.
#pragma once

#include "config/recipe.h"
#include "plan/located.h"

namespace automodel::plan {

struct TrainingPlan;

/// If capturing is requested, sets either CapturePlan::captured or, with a warning, CapturePlan::not_captured to the
/// reason. The rest of the plan must be complete. With capturing, gradients are reduced after the last microbatch of a
/// step, which turns sharding.overlap_reduction off.
void choose_capture(TrainingPlan& plan, const config::LoadedRecipe& recipe, Located& report);

}  // namespace automodel::plan
