// The distribution of a sequence's tokens over context-parallel ranks.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

namespace automodel::parallel {

/// A sequence is cut into 2 n equal chunks; rank r of n has chunks r and 2 n - 1 - r, so that all ranks do equal work
/// under a causal mask (Megatron-LM; Brandon et al. 2023).
struct ContextPlace {
  int size = 1;
  int rank = 0;
};

/// Positions in the sequence of the rank's tokens, in the order in which it stores them: int64 [length / size].
/// `length` must be a multiple of 2 size if size > 1.
at::Tensor token_places(std::int64_t length, ContextPlace place, at::Device device);

/// The columns of x [rows, length] at those positions.
at::Tensor own_tokens(const at::Tensor& x, ContextPlace place);

}  // namespace automodel::parallel
