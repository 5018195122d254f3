// Initial weights, computed from (seed, name, element): every mesh starts from the same bits, and a rank computes only
// what it keeps.
#pragma once

#include <cstdint>

#include "arch/model_spec.h"
#include "parallel/data/unit_storage.h"

namespace automodel::train {

/// Normal with the model's initializer_range for matrices, 1 for norms (0 where the norm adds 1), 0 for biases and for
/// the row of the padding token; GPT-2's residual projections are scaled by 1/sqrt(2 layers). As transformers
/// initialises. `all_zero`: model_parallel.perform_initialization is false.
parallel::WeightSource initial_values(const arch::ModelSpec& spec, std::uint64_t seed, bool all_zero = false);

}  // namespace automodel::train
