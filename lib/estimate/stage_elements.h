// What a stage holds, counted.
#pragma once

#include "plan/training_plan.h"

namespace automodel::estimate {

/// Elements of a stage on one rank of its tp and ep groups.
struct StageElements {
  double dense = 0;
  double expert = 0;
  double largest_unit = 0;   ///< of the units that are gathered together
  double largest_dense = 0;  ///< without experts
  // Of those the trained ones: all, or the adapters.
  double trained_dense = 0;
  double trained_expert = 0;
  double largest_trained = 0;
  /// What weights of few bits take less than in the type of computation, as its elements: they are left out above.
  double saved = 0;
  double largest_packed = 0;  ///< elements of the largest weight of few bits
  double dense_matrices = 0;  ///< of the trained ones, those of whole matrices (arch::is_hidden_matrix)
  double expert_matrices = 0;
  /// Of both on one rank: elements add up, the largest unit is one of them.
  StageElements& operator+=(const StageElements& other);
  double total() const { return dense + expert; }
  double trained() const { return trained_dense + trained_expert; }
};
StageElements stage_elements(const plan::TrainingPlan& plan, int stage);

}  // namespace automodel::estimate
