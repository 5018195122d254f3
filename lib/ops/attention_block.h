// Attention of some queries over a block of their keys. Whole attention is assembled from such blocks by way of their
// log-sum-exp (Milakov and Gimelshein 2018; Dao et al. 2022), so that keys may arrive block by block, or never be in
// one place at all (Liu et al. 2023).
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

#include "ops/chosen_keys.h"
#include "ops/documents.h"

namespace automodel::ops {

/// No limit on how far a query sees.
inline constexpr std::int64_t kEverything = std::int64_t{1} << 40;

/// Which scores of a block count, and how they are computed.
struct BlockOptions {
  double scale = 1;                   ///< factor of the scores
  double softcap = 0;                 ///< scores become softcap * tanh(score / softcap); 0: none
  std::int64_t before = kEverything;  ///< query i of the block sees keys i - before ... i + after; either may be
                                      ///< negative
  std::int64_t after = kEverything;   ///< see `before`
  const DocumentCut* cut = nullptr;   ///< queries see only keys of their own piece; null: one piece
  at::Tensor mask = {};    ///< further restricts what is seen: bool [batch or 1, 1, queries, keys], true where visible;
                           ///< undefined: no mask
  ChosenKeys chosen = {};  ///< the same, as a list for each query
};

/// Queries [batch, queries, heads, width], keys [batch, keys, groups, width] and values [batch, keys, groups, value
/// width], or their gradients; any strides.
struct Qkv {
  at::Tensor q, k, v;
};

struct BlockResult {
  at::Tensor out;  ///< [batch, queries, heads, value width], with the softmax over the block's keys only
  at::Tensor
      logsum;  ///< [batch, queries, heads]: log of the sum of exponentiated scores, float32 (float64 for float64)
};

/// A logsum below that of any real score. Where a query sees no key of a block, its logsum is at most half of this, and
/// `out` is finite and gets weight 0 when blocks are joined.
inline constexpr double kMaskedLogSum = -1e30;

/// The implementations of attention.
enum class AttentionKernel : std::uint8_t {
  kPyTorch,   ///< on a GPU: PyTorch's choice among its fused kernels, recorded by its autograd; gives no logsum
  kFlash,     ///< on a GPU: LibTorch's fused forward and backward passes (ops/flash_attention.h)
  kHost,      ///< on the CPU: LibTorch's blocked kernel, or tiles of our own (host_block.cpp)
  kComposed,  ///< plain tensor operations on one chunk of queries at a time (base/score_chunk.h); scores are recomputed
              ///< in the backward pass
};
struct AttentionShape {
  std::int64_t heads = 1, groups = 1, width = 1, value_width = 1;
  std::int64_t queries = 0, keys = 0;  ///< of the block; both 0: as many queries as keys
};
/// True for tensors on a GPU, and for CPU tensors that tests treat as if they were.
bool attends_on_device(const at::Tensor& x);
/// The one place that chooses the implementation. `x` has the type and device of the queries; `whole`: every token of
/// the sequence sees all tokens, or all before it, and the logsum is not needed.
AttentionKernel attention_kernel(const at::Tensor& x, const AttentionShape& shape, const BlockOptions& options,
                                 bool whole = false);

/// q [batch, queries, heads, width], k [batch, keys, groups, width], v [batch, keys, groups, value width]; heads is a
/// multiple of groups. All contiguous in the last dimension. Not recorded in the graph.
BlockResult attention_block(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const BlockOptions& options);

/// The block's share of the gradients, written (not added) to `out`, which has the inputs' shapes. `whole` is the
/// result of the complete attention for these queries: all blocks joined, sinks absorbed.
void attention_block_backward(const at::Tensor& gradient, const Qkv& in, const BlockResult& whole,
                              const BlockOptions& options, const Qkv& out);

/// Joins `block` into `sum`, which becomes the attention over the keys of both; computed in the type of `sum`.
void join_block(BlockResult& sum, const BlockResult& block);

/// Adds one more logit per head, which joins the softmax but carries no value. sinks [heads].
void absorb_sinks(BlockResult& whole, const at::Tensor& sinks);
/// Gradient of the sinks [heads], in the type of the logsum; `whole` is the result after absorb_sinks().
at::Tensor sinks_gradient(const at::Tensor& gradient, const BlockResult& whole, const at::Tensor& sinks);

}  // namespace automodel::ops
