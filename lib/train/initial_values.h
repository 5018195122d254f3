// Initial weights, computed from (seed, name, element): every mesh starts from the same bits, and a rank computes only
// what it keeps.
#pragma once

#include <cstdint>

#include "parallel/data/unit_storage.h"
#include "plan/training_plan.h"

namespace automodel::train {

/// Normal with the model's initializer_range for matrices, 1 for norms (0 where the norm adds 1), 0 for biases and for
/// the row of the padding token; GPT-2's residual projections are scaled by 1/sqrt(2 layers). As transformers
/// initialises. Adapters as the recipe's lora_A_init says, where everything else is left zero as well
/// (plan.weights.zero): they would never leave it.
parallel::WeightSource initial_values(const plan::TrainingPlan& plan);
/// The same from another seed, or although the plan leaves weights zero.
parallel::WeightSource initial_values(const plan::TrainingPlan& plan, const plan::WeightOrigin& origin);

/// Of adapters with magnitudes: these are the lengths of the rows of the weights that `base` gives, everything else
/// comes from `rest`.
parallel::WeightSource magnitudes_over(const plan::TrainingPlan& plan, parallel::WeightSource base,
                                       parallel::WeightSource rest);

}  // namespace automodel::train
