// The loss of logits whose vocabulary the ranks of a group share: each rank sends three numbers a token instead of its
// logits.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

#include "comm/communicator.h"

namespace automodel::parallel {

/// The rows of a vocabulary of `size` that one rank has: equal shares, the last ones filled up.
struct VocabularyShare {
  std::int64_t first = 0;  ///< token of the first row
  std::int64_t rows = 0;   ///< that stand for tokens
  static VocabularyShare of(std::int64_t size, int ranks, int rank);
};

/// ops::cross_entropy for logits [..., share with filling]; the result is the whole loss, equal on all ranks, and the
/// logits' gradient is that of the share.
at::Tensor vocabulary_loss(comm::Communicator& group, const at::Tensor& logits, const at::Tensor& labels, double scale,
                           std::int64_t ignore, const VocabularyShare& share);

}  // namespace automodel::parallel
