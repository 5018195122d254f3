// The pipeline part of a plan: schedule, stages, shapes.
#pragma once

#include "plan/training_plan.h"

namespace automodel::plan {

/// Cuts the model into stages, makes and proves the schedule. One pipeline rank is a pipeline of length 1: the same
/// code, GPipe's order, one stage. Fills `plan.pipeline` and the microbatches of `plan.batch`; problems go to `report`.
void plan_pipeline(TrainingPlan& plan, const config::LoadedRecipe& recipe, Located& report);

/// Layers of each of `stages` stages such that the largest cost is as small as it can be: `layer_cost` for each layer,
/// `first_cost` and `last_cost` for what the ends have beside their layers. At least one layer a stage; ends with an
/// expensive head get fewer layers.
std::vector<LayerRange> balanced_layers(int stages, const std::vector<double>& layer_cost, double first_cost,
                                        double last_cost);

}  // namespace automodel::plan
