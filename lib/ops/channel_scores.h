// Scores of queries and keys with a decay of its own for every channel (Kimi Delta Attention).
#pragma once

#include <ATen/core/Tensor.h>

namespace automodel::ops {

/// [..., size, size]: sum over channels c of x_i[c] exp(sum_i[c] - sum_j[c]) k_j[c] for j <= i, 0 above the diagonal.
/// x, k and `sum` [..., size, width] are contiguous; size is a power of two; `sum` is non-increasing over tokens. No
/// factor exceeds 1, however strong the decay: pairs of tokens are computed in blocks below the diagonal, each relative
/// to the decay at the boundary between its two halves.
at::Tensor channel_scores(const at::Tensor& x, const at::Tensor& k, const at::Tensor& sum);

/// Adds the gradients of x and k to `dx` and `dk`. Of the scores' gradient, only entries with j <= i count.
void add_channel_score_gradients(const at::Tensor& gradient, const at::Tensor& x, const at::Tensor& k,
                                 const at::Tensor& sum, at::Tensor dx, at::Tensor dk);

}  // namespace automodel::ops
