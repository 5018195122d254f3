// Which experts have the highest scores, and tokens in the order of their experts.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

namespace automodel::ops {

/// The numbers of the `k` largest of each row of scores [n, columns], largest first: int64 [n, k]. Without a graph. Of
/// equal ones the first comes first, on the CPU as far as ATen's topk does so.
at::Tensor top_k(const at::Tensor& scores, std::int64_t k);

/// Choices [n, k] of experts, sorted by expert and in their order.
struct SortedChoices {
  at::Tensor from;    ///< [n * k]: the row that stands at each place
  at::Tensor place;   ///< [n * k]: where each choice went
  at::Tensor counts;  ///< [experts]: how many chose each
};
SortedChoices sort_choices(const at::Tensor& choices, std::int64_t experts);

}  // namespace automodel::ops
