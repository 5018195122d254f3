// Scores of queries and keys whose every channel decays on its own (Kimi Delta Attention).
#pragma once

#include <ATen/core/Tensor.h>

namespace automodel::ops {

/// [..., size, size]: sum over channels c of x_i[c] exp(sum_i[c] - sum_j[c]) k_j[c] for j <= i, 0 above the diagonal.
/// x, k and `sum` [..., size, width], contiguous; size is a power of two; `sum` never grows from token to token. No
/// factor is ever larger than 1, however strong the decay: pairs of tokens are computed in blocks below the diagonal,
/// each with the decay up to its own first token taken out.
at::Tensor channel_scores(const at::Tensor& x, const at::Tensor& k, const at::Tensor& sum);

/// Adds to `dx` and `dk` their gradients from that of the scores, which counts for j <= i.
void add_channel_score_gradients(const at::Tensor& gradient, const at::Tensor& x, const at::Tensor& k,
                                 const at::Tensor& sum, at::Tensor dx, at::Tensor dk);

}  // namespace automodel::ops
