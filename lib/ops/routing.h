// Choice of the experts with the highest scores, and sorting of tokens by expert.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

namespace automodel::ops {

/// Column indices of the `k` largest scores [n, columns] of each row, largest first: int64 [n, k]. Not recorded in the
/// graph. Ties go to the lower index, on the CPU only as far as ATen's topk does so.
at::Tensor top_k(const at::Tensor& scores, std::int64_t k);

/// Choices [n, k] of experts, sorted by expert; stable.
struct SortedChoices {
  at::Tensor from;    ///< [n * k]: row that each sorted choice came from
  at::Tensor place;   ///< [n * k]: sorted position of each choice
  at::Tensor counts;  ///< [experts]: number of choices of each expert
};
SortedChoices sort_choices(const at::Tensor& choices, std::int64_t experts);

}  // namespace automodel::ops
