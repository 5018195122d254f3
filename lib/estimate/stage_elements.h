// Parameter elements of a stage.
#pragma once

#include "plan/training_plan.h"

namespace automodel::estimate {

/// Elements of a stage on one rank of its tp and ep groups.
struct StageElements {
  double dense = 0;
  double expert = 0;
  double largest_unit = 0;    ///< largest unit that is gathered at once
  double largest_dense = 0;   ///< the same without experts
  double largest_expert = 0;  ///< a layer's experts
  // The trained ones among them: all, or only the adapters.
  double trained_dense = 0;
  double trained_expert = 0;
  double largest_trained = 0;
  /// Savings from quantised weights compared with the compute dtype, in elements of that dtype. Already deducted above.
  double saved = 0;
  double largest_packed = 0;  ///< elements of the largest quantised weight
  double kept_float8 = 0;     ///< weights whose 8-bit forms are kept (plan::Float8Plan)
  double dense_matrices = 0;  ///< trained elements in matrices updated as a whole (arch::is_hidden_matrix)
  double expert_matrices = 0;
  /// Combines two stages on one rank: elements add up, largest units take the maximum.
  StageElements& operator+=(const StageElements& other);
  double total() const { return dense + expert; }
  double trained() const { return trained_dense + trained_expert; }
};
StageElements stage_elements(const plan::TrainingPlan& plan, int stage);

}  // namespace automodel::estimate
