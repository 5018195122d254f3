// The loss of vocabulary-parallel logits: each rank sends three numbers per token instead of its logits.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

#include "comm/communicator.h"

namespace automodel::parallel {

/// The rows of a vocabulary of `size` on one rank: equal shares, the last ones padded.
struct VocabularyShare {
  std::int64_t first = 0;  ///< token of the first row
  std::int64_t rows = 0;   ///< number of rows that stand for tokens
  static VocabularyShare of(std::int64_t size, int ranks, int rank);
};

/// ops::cross_entropy for logits [..., share with padding]. The result is the whole loss, equal on all ranks; the
/// logits' gradient is that of this rank's share.
at::Tensor vocabulary_loss(comm::Communicator& group, const at::Tensor& logits, const at::Tensor& labels, double scale,
                           std::int64_t ignore, const VocabularyShare& share);

}  // namespace automodel::parallel
