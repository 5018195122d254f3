// Keys that queries were chosen to see, as lists instead of a mask of all pairs.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

#include "base/score_chunk.h"
#include "ops/documents.h"

namespace automodel::ops {

/// A query sees the keys of the blocks listed for it, as far as nothing else hides them.
class ChosenKeys {
 public:
  ChosenKeys() = default;  ///< no choice: all are seen
  /// `listed` integers [batch, queries, n] below `count`; `block_of` int64 [batch, keys]: the block of each key;
  /// undefined: key i is block i.
  ChosenKeys(at::Tensor listed, std::int64_t count, at::Tensor block_of = {});
  /// The narrowest type of lists of keys or blocks of so many keys.
  static at::ScalarType type_for(std::int64_t keys) { return listed_key_bytes(keys) == 2 ? at::kShort : at::kInt; }

  bool defined() const { return listed_.defined(); }
  /// Those of a piece's queries and keys.
  ChosenKeys part(const Piece& piece) const;
  /// bool [batch, 1, queries, keys], true where seen.
  at::Tensor mask(std::int64_t query, std::int64_t queries, std::int64_t key, std::int64_t keys) const;

 private:
  at::Tensor listed_ = {}, block_of_ = {};
  std::int64_t count_ = 0;
  std::int64_t first_ = 0;  ///< block of the first key, where keys are blocks
};

}  // namespace automodel::ops
