// The column-parallel and row-parallel linear layers with their communication, which may overlap with their GEMMs.
#pragma once

#include <ATen/core/Tensor.h>

#include "arch/tensor_plan.h"
#include "comm/communicator.h"
#include "ops/linear.h"

namespace automodel::parallel {

/// How ranks hold the tokens of the residual stream, and which transfers overlap with GEMMs.
struct ProductOptions {
  bool sequence = false;  ///< each rank has a share of the tokens; else all of them
  arch::TensorOverlap overlap = {};
};

/// Column-parallel: x [batch, tokens (or this rank's share), in] of the residual stream to [batch, all tokens, out
/// here], by weights whose outputs are divided. Saves only the local x; the backward pass gathers it again.
at::Tensor column_product(comm::Communicator& group, const at::Tensor& x, const ops::Linear& layer,
                          const ProductOptions& options);

/// Row-parallel: x [batch, all tokens, in here] to the sum over ranks, plus the bias: [batch, tokens (or this rank's
/// share), out].
at::Tensor row_product(comm::Communicator& group, const at::Tensor& x, const ops::Linear& layer,
                       const ProductOptions& options);

}  // namespace automodel::parallel
