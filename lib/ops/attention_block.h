// Attention of some queries over some of the keys that they see. A whole attention is put together from such blocks by
// the logarithms of their softmax sums (Milakov and Gimelshein 2018; Dao et al. 2022), so that keys may arrive one
// block after another, or never be in one place at all (Liu et al. 2023).
#pragma once

#include <ATen/core/Tensor.h>

namespace automodel::ops {

/// Which scores of a block count, and how they are made.
struct BlockOptions {
  double scale = 1;      ///< of the scores
  double softcap = 0;    ///< scores become softcap * tanh(score / softcap); 0: none
  bool causal = false;   ///< query i of the block sees its keys 0 ... i
  at::Tensor mask = {};  ///< bool [batch or 1, 1, queries, keys], true for pairs that attend; then `causal` is not
                         ///< looked at
};

/// Queries [batch, queries, heads, width], keys [batch, keys, groups, width] and values [batch, keys, groups, value
/// width], or their gradients; of any strides.
struct Qkv {
  at::Tensor q, k, v;
};

struct BlockResult {
  at::Tensor out;  ///< [batch, queries, heads, value width], the softmax taken over the block's keys alone
  at::Tensor
      logsum;  ///< [batch, queries, heads]: log of the sum of exponentiated scores, float32 (float64 for float64)
};

/// A logsum that no real score has: where a query sees no key of a block, its logsum is at or below half of this, and
/// `out` is finite and counts nothing when blocks are joined.
inline constexpr double kNothingSeen = -1e30;

/// q [batch, queries, heads, width], k [batch, keys, groups, width], v [batch, keys, groups, value width]; heads is a
/// multiple of groups. All contiguous in the last dimension; nothing is recorded.
BlockResult attention_block(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const BlockOptions& options);

/// The block's share of the gradients, into `out` (of the inputs' shapes), which is overwritten. `whole` is the result
/// of the whole attention for these queries: all blocks joined, sinks absorbed.
void attention_block_backward(const at::Tensor& gradient, const Qkv& in, const BlockResult& whole,
                              const BlockOptions& options, const Qkv& out);

/// `sum` becomes the attention over the keys of both; in the type of `sum`.
void join_block(BlockResult& sum, const BlockResult& block);

/// One more logit for each head, which takes part in the softmax and carries no value. sinks [heads].
void absorb_sinks(BlockResult& whole, const at::Tensor& sinks);
/// Gradient of the sinks [heads] after absorb_sinks gave `whole`, in the type of its logsum.
at::Tensor sinks_gradient(const at::Tensor& gradient, const BlockResult& whole, const at::Tensor& sinks);

}  // namespace automodel::ops
