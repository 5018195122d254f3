// Whether microbatches are captured as CUDA graphs, and if not, why.
#pragma once

#include "config/recipe.h"
#include "plan/located.h"

namespace automodel::plan {

struct TrainingPlan;

/// Fills Levers::captured and Levers::not_captured, and warns where capturing is asked for and has no effect. Needs
/// everything else of the plan. Captured gradients are reduced behind the last microbatch of a step.
void choose_capture(TrainingPlan& plan, const config::LoadedRecipe& recipe, Located& report);

}  // namespace automodel::plan
