// Defects of some tensors only: layers, kinds of weights, shards, parts of a tied weight.
#pragma once

#include <optional>
#include <vector>

#include "against/finding.h"

namespace automodel::against {

/// How a tensor differs.
enum class State : std::uint8_t {
  kEqual,
  kZero,    ///< no gradient at all, where ours is more than noise
  kScaled,  ///< a constant times ours
  kShard,   ///< zero for some indices of one dimension, equal for the others
  kOther,
};

struct TensorState {
  State state = State::kEqual;
  double factor = 1;                       ///< kScaled
  std::size_t dimension = 0;               ///< kShard
  std::vector<std::int64_t> missing = {};  ///< kShard: indices of that dimension
};

/// By tensor.
std::vector<TensorState> states(const Evidence& evidence);

/// Where each tensor is equal by itself: marks as scaled all tensors, those of layers, or those of kinds, whose common
/// factor differs from 1 by more than Tolerance::of_sums(). Wide tolerances of single tensors would hide it.
void mark_factors(const Evidence& evidence, std::vector<TensorState>& states);

/// Layers, a layer's factor, a shard, or a tied weight; empty if none of them predicts the dump.
std::optional<Finding> explain_by_tensors(const Evidence& evidence, const std::vector<TensorState>& states,
                                          Laboratory& laboratory);

/// One kind of weight that alone differs, however it does; empty if several do.
std::optional<Finding> explain_by_kind(const Evidence& evidence, const std::vector<TensorState>& states);

/// Which tensors differ, for a finding without an explanation.
std::string described(const Evidence& evidence, const std::vector<TensorState>& states,
                      const std::vector<Likeness>& likenesses);

}  // namespace automodel::against
