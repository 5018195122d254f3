// Linear attention whose state is corrected instead of added to: the gated delta rule (Yang et al. 2025, Gated Delta
// Networks) and its form with a decay for each channel (Kimi Delta Attention, 2025).
#pragma once

#include <ATen/core/Tensor.h>

#include "ops/chunks.h"

namespace automodel::ops {

struct DeltaTokens {
  at::Tensor queries = {};  ///< [batch, tokens, groups, width]
  at::Tensor keys = {};     ///< the same shape
  at::Tensor values = {};   ///< [batch, tokens, heads, value width], heads a multiple of groups
  /// Log of the factor that the state is multiplied with before each token, at most 0: [batch, tokens, heads], or with
  /// heads = groups [batch, tokens, heads, width] for each channel of the keys.
  at::Tensor decays = {};
  at::Tensor rates = {};  ///< [batch, tokens, heads]: strength of the correction, 0 to 1 (beta)
};

/// S' = exp(decay_t) S_{t-1}; S_t = S' + key_t rate_t (value_t - S'^T key_t)^T from S = 0 at the start of each
/// document; result_t = S_t^T query_t, [batch, tokens, heads, value width] in the values' type. Queries and keys are
/// first divided by their length, sqrt(sum of squares + `length_eps`), and queries multiplied by width^-1/2. The heads
/// / groups consecutive heads of a group share its queries and keys. Computed in float32 or better. Keeps only its
/// inputs: the backward pass recomputes the states.
at::Tensor delta_rule(const DeltaTokens& in, double length_eps, const ScanOptions& options);

}  // namespace automodel::ops
