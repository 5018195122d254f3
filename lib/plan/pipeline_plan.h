// The pipeline part of a plan: schedule, stages and shapes.
#pragma once

#include "plan/training_plan.h"

namespace automodel::plan {

/// Splits the model into stages, and generates and proves the schedule. Without pipeline parallelism this is a pipeline
/// of length 1 with GPipe's order and one stage. Fills `plan.pipeline` and the microbatches of `plan.batch`; problems
/// go to `report`. `costs` provides what `layers_per_stage: auto` balances.
void plan_pipeline(TrainingPlan& plan, const config::LoadedRecipe& recipe, const PlanRequest& request, Costs& costs,
                   Located& report);
/// Rejects an unknown schedule name. This is the only pipeline check that also runs if the mesh has errors.
void check_schedule_name(const config::LoadedRecipe& recipe, Located& report);

}  // namespace automodel::plan
