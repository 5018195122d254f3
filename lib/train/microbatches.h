// Batches of numbers as the tensors that stages take.
#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include "data/batch.h"
#include "model/blocks.h"
#include "parallel/context/layout.h"

namespace automodel::train {

/// A batch cut into microbatches of `rows` rows, on `device`: the tokens that context-parallel rank `place` has.
std::vector<model::Microbatch> make_microbatches(const data::Batch& batch, int rows, at::Device device,
                                                 parallel::ContextPlace place = {});

}  // namespace automodel::train
