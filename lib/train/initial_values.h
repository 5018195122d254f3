// Initial weights, computed from (seed, name, element): every mesh starts from the same bits, and a rank computes only
// what it keeps.
#pragma once

#include <cstdint>

#include "parallel/data/unit_storage.h"
#include "plan/training_plan.h"

namespace automodel::train {

/// Initial values as in transformers: normal with the model's initializer_range for matrices, 1 for norms (0 if the
/// norm adds 1), 0 for biases and for the row of the padding token; GPT-2's residual projections are scaled by 1/sqrt(2
/// layers). Adapters as the recipe's lora_A_init says, even if all other weights are to be left zero
/// (plan.weights.zero): as zeros they could never be trained.
parallel::WeightSource initial_values(const plan::TrainingPlan& plan);
/// The same with another seed, or with real values although the plan leaves weights zero.
parallel::WeightSource initial_values(const plan::TrainingPlan& plan, const plan::WeightOrigin& origin);

/// If adapters have magnitudes: initialises these to the row lengths of the weights that `base` supplies; `rest`
/// supplies everything else.
parallel::WeightSource magnitudes_over(const plan::TrainingPlan& plan, parallel::WeightSource base,
                                       parallel::WeightSource rest);

}  // namespace automodel::train
