// What a recipe trains its model for, and the rules that follow from it.
#pragma once

#include "base/problems.h"
#include "config/recipe.h"

namespace automodel::config {

enum class Objective { kNextToken, kClassification, kDistillation };

/// Judged by the recipe's class (`recipe`) and the model's (`model._target_`), or by `teacher_model`: one suffices.
Objective objective_of(const Recipe& recipe);

/// Classes of the recipe's model: num_labels; 0 if it is not a classifier, or does not say.
int classes_of(const Recipe& recipe);

/// Reports keys that contradict the objective, or that it lacks: missing-key, bad-value, unsupported-option.
void check_objective(const Recipe& recipe, Problems& problems);

}  // namespace automodel::config
