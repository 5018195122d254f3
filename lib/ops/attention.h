// Scaled dot-product attention with grouped key and value heads (GQA): causal, sliding-window, packed.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include <ATen/core/Tensor.h>

#include "ops/chosen_keys.h"
#include "ops/documents.h"
#include "ops/parameter.h"

namespace automodel::ops {

struct AttentionOptions {
  double scale = 1;  ///< factor of the scores, usually 1/sqrt(width)
  bool causal = true;
  std::int64_t window = 0;   ///< sliding window: keys less than `window` tokens away are visible; 0: all
  double softcap = 0;        ///< scores become softcap * tanh(score / softcap); 0: none
  at::Tensor segments = {};  ///< int64 [batch, tokens of the whole sequence]: tokens attend only within their own
                             ///< segment; undefined: one segment
  /// The segments as host-side ranges, if the host knows them and every segment is contiguous. Null: only `segments`
  /// says it, which on a GPU costs a mask.
  std::shared_ptr<const Documents> documents = {};
  at::Tensor mask = {};         ///< bool [batch, tokens, keys]: restricts which keys a query sees; undefined: no
                                ///< restriction
  ChosenKeys chosen = {};       ///< the same, as a list for each token
  Parameter* sinks = nullptr;   ///< [heads]: a logit per head that joins the softmax but carries no value
  std::int64_t first_sink = 0;  ///< index of the sink of the first head here, if these are only some of the heads
};

/// q [batch, tokens, heads, width], k [batch, tokens, groups, width], v [batch, tokens, groups, value width]; heads is
/// a multiple of groups. Returns [batch, tokens, heads, value width].
at::Tensor attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const AttentionOptions& options);

/// Attention of the last tokens of a text over the (cached) keys and values of all its tokens: query i is at position
/// keys - queries + i. Causal, unless there are no earlier tokens; not recorded in the graph. q [batch, queries, heads,
/// width], keys and values [batch, keys, groups, ...].
at::Tensor attention_after(const at::Tensor& q, const std::pair<at::Tensor, at::Tensor>& keys_values,
                           const AttentionOptions& options);

/// Layout of a joined QKV projection, and its rotary embedding.
struct JoinedHeads {
  std::int64_t heads = 1, groups = 1, width = 1;
  at::Tensor cos = {}, sin = {};  ///< [positions, width/2]
  bool interleaved = false;       ///< rotates pairs of neighbours (ops/rope.h)
  at::Tensor positions = {};      ///< int64 [batch, tokens]
};

/// Rotary embedding and attention in one operation. qkv [batch, tokens, (heads + 2 groups) * width] holds all query
/// heads, then key heads, then value heads; it is rotated in place. Returns [batch, tokens, heads * width].
at::Tensor rope_attention(const at::Tensor& qkv, const JoinedHeads& layout, const AttentionOptions& options);

/// True where query and key are in the same segment: bool [batch, 1, queries, keys] of segments [batch, queries] and
/// [batch, keys].
at::Tensor same_segment(const at::Tensor& queries, const at::Tensor& keys);

/// Derives `documents` from `segments` if attention runs on the host; device tensors are never read back.
AttentionOptions with_documents(const AttentionOptions& options, const at::Tensor& q);

/// The sinks of the `heads` heads here; undefined if there are none.
at::Tensor sinks_of(const AttentionOptions& options, std::int64_t heads);
/// Adds the gradient of the heads here to that of the sinks.
void accumulate_sinks(const AttentionOptions& options, const at::Tensor& gradient);

}  // namespace automodel::ops
