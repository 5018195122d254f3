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
  /// Logarithm of the state's factor before each token, at most 0: [batch, tokens, heads], or with heads = groups
  /// [batch, tokens, heads, width] for each channel of the keys.
  at::Tensor decays = {};
  at::Tensor rates = {};  ///< [batch, tokens, heads]: how far a state is corrected, 0 to 1 (beta)
};

/// S' = exp(decay_t) S_{t-1}; S_t = S' + key_t rate_t (value_t - S'^T key_t)^T from S = 0 at the start of each
/// document; result_t = S_t^T query_t, [batch, tokens, heads, value width] in the values' type. Queries and keys are
/// first divided by their lengths, sqrt(sum of squares + `length_eps`), and queries multiplied with width^-1/2. A
/// group's queries and keys serve heads / groups neighbouring heads. Computed in float32 or better. Keeps its inputs
/// only: the backward pass computes the states again.
at::Tensor delta_rule(const DeltaTokens& in, double length_eps, const ScanOptions& options);

}  // namespace automodel::ops
