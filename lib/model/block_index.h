// Selection of the blocks of earlier tokens that a token attends to (MiniMax-M3, 2026).
#pragma once

#include <vector>

#include <ATen/core/Tensor.h>

#include "model/blocks.h"
#include "ops/chosen_keys.h"

namespace automodel::model {

/// The index of a layer (arch::TokenIndex with blocks): heads of queries and one key per token, normalised and rotated.
/// A block's score for a query is the best product of the query with a key of the block that it may see. Each head
/// chooses for its share of attention's heads. Blocks are counted from the beginning of each document. No gradient
/// passes through the choice.
class BlockIndex {
 public:
  BlockIndex() = default;
  BlockIndex(const BlockContext& context, int layer);

  /// Of each head of the index, the blocks of each query. Blocks that it may not see are included if there are too few
  /// others, so attention must still apply its own masks. Computed for some queries at a time, as scores have an
  /// element for each pair of tokens. y [batch, tokens here, width] is attention's input; with context parallelism that
  /// of the rank's tokens, and the choice is of all.
  std::vector<ops::ChosenKeys> choose(const at::Tensor& y, const Microbatch& microbatch) const;

 private:
  const arch::TokenIndex* index_ = nullptr;
  ContextSeam* context_ = nullptr;
  RopeTable* table_ = nullptr;
  ops::Parameter *query_ = nullptr, *key_ = nullptr, *query_norm_ = nullptr, *key_norm_ = nullptr;
  double eps_ = 0;
};

}  // namespace automodel::model
