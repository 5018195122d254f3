// Linear attention with a decay that all channels of a head share: the state-space duality of Mamba-2 (Dao and Gu 2024)
// and lightning attention (Qin et al. 2024).
#pragma once

#include <ATen/core/Tensor.h>

#include "ops/chunks.h"

namespace automodel::ops {

/// What a head's tokens are in the scan.
struct DecayedTokens {
  at::Tensor queries = {};  ///< [batch, tokens, groups, width]; Mamba's C
  at::Tensor keys = {};     ///< the same shape; Mamba's B
  at::Tensor values = {};   ///< [batch, tokens, heads, value width], heads a multiple of groups
  at::Tensor decays = {};   ///< [batch, tokens, heads]: logarithm of the state's factor before each token, at most 0
  at::Tensor steps = {};    ///< [batch, tokens, heads]: factor of each value (Mamba's time step); undefined: 1
};

/// S_t = exp(decay_t) S_{t-1} + key_t (step_t value_t)^T from S = 0 at the start of each document; result_t = S_t^T
/// query_t, [batch, tokens, heads, value width] in the values' type. A group's queries and keys serve heads / groups
/// neighbouring heads. Computed in float32 or better. Keeps its inputs only: the backward pass computes the states
/// again.
at::Tensor decayed_scan(const DecayedTokens& in, const ScanOptions& options);

}  // namespace automodel::ops
