// Selection of the earlier tokens that a token attends to (DeepSeek-V3.2, 2025).
#pragma once

#include <map>

#include <ATen/core/Tensor.h>

#include "model/blocks.h"
#include "model/head_share.h"
#include "ops/chosen_keys.h"

namespace automodel::model {

/// The choices of a stage's layers for one microbatch. Later layers use them too, also when they are recomputed.
struct TokenChoices {
  std::map<int, ops::ChosenKeys> of_layer = {};
};

/// int64 [batch, queries, most]: the keys of each query with the best scores among those that it `may` see; others are
/// included if these are fewer. q [batch, queries, heads, width], keys [batch, width, keys]; weights
/// [batch, queries, heads] as in TokenIndex. `may` bool, [batch or 1, queries, keys].
at::Tensor best_scored(const at::Tensor& q, const at::Tensor& keys, const at::Tensor& weights, const at::Tensor& may,
                       std::int64_t most);

/// Which of a sequence's keys the tokens here may see, earlier ones of their document.
class EarlierTokens {
 public:
  EarlierTokens(const Microbatch& microbatch, const HeadShare& share, at::Device device);
  /// bool [batch or 1, queries, tokens of the sequence], of some of the queries here.
  at::Tensor of(std::int64_t query, std::int64_t queries) const;

 private:
  at::Tensor keys_, queries_, key_segments_, query_segments_;
};

/// The index of a layer that chooses (arch::TokenIndex) tokens one by one: heads of queries projected from attention's
/// low-rank queries, and one key per token. The score of token k for token q is the sum over heads of w_h relu(q_h k),
/// with weights w projected from token q. No gradient passes through the choice.
class TokenIndex {
 public:
  TokenIndex() = default;
  TokenIndex(const BlockContext& context, int layer);

  /// Each query's top_k tokens among those it may see. If it may see fewer, others are included, so attention must
  /// still apply its own masks. Computed for some queries at a time, as scores have an element for each pair of tokens.
  /// y [batch, tokens here, width] is attention's input, low_q [batch, tokens here, rank] its low-rank queries; with
  /// context parallelism both are of the rank's tokens, and the choice is of all.
  ops::ChosenKeys choose(const at::Tensor& y, const at::Tensor& low_q, const Microbatch& microbatch) const;

 private:
  const arch::TokenIndex* index_ = nullptr;
  ContextSeam* context_ = nullptr;
  RopeTable* table_ = nullptr;
  ops::Parameter *query_ = nullptr, *key_ = nullptr, *key_norm_ = nullptr, *key_norm_bias_ = nullptr,
                 *weights_ = nullptr;
};

}  // namespace automodel::model
