// Keys and values of the tokens that a stage has seen, for generation: a new token attends to them without recomputing
// its predecessors.
#pragma once

#include <cstdint>
#include <map>
#include <utility>

#include <ATen/core/Tensor.h>

namespace automodel::model {

/// Holds one sequence, or a batch of sequences of equal length. Keys are stored as attention uses them: normed and
/// rotated.
class KeyValueCache {
 public:
  /// The number of valid tokens; new ones are appended after them.
  std::int64_t tokens() const { return tokens_; }
  /// Sets the number of valid tokens: higher after a forward pass, lower to forget the last ones.
  void set_tokens(std::int64_t tokens) { tokens_ = tokens; }

  /// Appends k [batch, new tokens, groups, width] and v of `layer` after the valid tokens, without counting them as
  /// valid. Returns the keys and values of all [batch, tokens() + new tokens, ...], views of the cache. Padding at the
  /// end of the new tokens is harmless: tokens see only earlier ones, and the next call overwrites whatever
  /// set_tokens() did not count.
  std::pair<at::Tensor, at::Tensor> extend(int layer, const at::Tensor& k, const at::Tensor& v);

  /// Allocated bytes over all layers.
  std::int64_t bytes() const;

 private:
  struct Kept {
    at::Tensor k, v;
  };
  at::Tensor put(at::Tensor& kept, const at::Tensor& added) const;

  std::int64_t tokens_ = 0;
  std::map<int, Kept> layers_ = {};
};

}  // namespace automodel::model
