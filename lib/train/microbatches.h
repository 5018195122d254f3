// Converts batches into the tensors that stages use.
#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include "data/batch.h"
#include "model/blocks.h"
#include "parallel/context/layout.h"

namespace automodel::train {

/// Splits a batch into microbatches of `rows` rows on `device`, with the tokens of context-parallel rank `place`.
std::vector<model::Microbatch> make_microbatches(const data::Batch& batch, int rows, at::Device device,
                                                 parallel::ContextPlace place = {});

/// The seed of a step's dropout, and the position of the batch in the step.
struct DropoutPlace {
  std::uint64_t seed = 0;
  std::int64_t step = 0;
  std::int64_t first_row = 0;  ///< index of the batch's first row in the global batch
  parallel::ContextPlace context = {};
};
/// Sets the dropout draws of a batch's microbatches. A token draws the same numbers on every mesh.
void draw_dropout(std::vector<model::Microbatch>& microbatches, const DropoutPlace& place);

}  // namespace automodel::train
