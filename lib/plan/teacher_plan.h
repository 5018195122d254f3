// The plan of the model that a student learns from: on the student's mesh, in the same schedule, all of it frozen.
#pragma once

#include <memory>

#include "plan/located.h"
#include "plan/training_plan.h"

namespace automodel::plan {

/// Plans `teacher_model` as the recipe's model, without what only training needs. Null after problems, and (with a
/// warning) if the teacher's sizes are unknown. `student` need not have stages yet. Problems: those of make_plan under
/// the teacher's keys; size-conflict (another vocabulary), unsupported-option (a head that cannot be read in chunks, or
/// is divided otherwise).
std::shared_ptr<const TrainingPlan> plan_teacher(const config::LoadedRecipe& recipe, const TrainingPlan& student,
                                                 const PlanRequest& request, Costs& costs, Located& report);

}  // namespace automodel::plan
