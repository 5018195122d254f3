// Linear attention with a decay that all channels of a head share: the state-space duality of Mamba-2 (Dao and Gu 2024)
// and lightning attention (Qin et al. 2024).
#pragma once

#include <ATen/core/Tensor.h>

#include "ops/chunks.h"

namespace automodel::ops {

/// The inputs of the scan.
struct DecayedTokens {
  at::Tensor queries = {};  ///< [batch, tokens, groups, width]; Mamba's C
  at::Tensor keys = {};     ///< the same shape; Mamba's B
  at::Tensor values = {};   ///< [batch, tokens, heads, value width], heads a multiple of groups
  at::Tensor decays = {};   ///< [batch, tokens, heads]: log of the state's decay factor before each token, at most 0
  at::Tensor steps = {};    ///< [batch, tokens, heads]: factor of each value (Mamba's time step); undefined: 1
};

/// S_t = exp(decay_t) S_{t-1} + key_t (step_t value_t)^T from S = 0 at the start of each document; result_t = S_t^T
/// query_t, [batch, tokens, heads, value width] in the values' type. The heads / groups consecutive heads of a group
/// share its queries and keys. Computed in float32 or better. Keeps only its inputs: the backward pass recomputes the
/// states.
at::Tensor decayed_scan(const DecayedTokens& in, const ScanOptions& options);

}  // namespace automodel::ops
