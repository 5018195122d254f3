// Chooses the dtype of every tensor in a run; docs/precision.md has the table.
#pragma once

#include "arch/model_spec.h"
#include "plan/located.h"
#include "plan/training_plan.h"

namespace automodel::plan {

/// `spec`: null if the model is unknown. Problems: precision-conflict if two keys assign different dtypes to the same
/// role.
TypePlan choose_types(const config::LoadedRecipe& loaded, const arch::ModelSpec* spec, bool cuda, Located& report);

}  // namespace automodel::plan
