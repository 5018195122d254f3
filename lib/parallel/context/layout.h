// Which tokens of a sequence a context-parallel rank has.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

namespace automodel::parallel {

/// A sequence is cut into 2 n equal chunks; rank r of n has chunks r and 2 n - 1 - r, so that under a causal mask all
/// ranks do the same work (Megatron-LM; Brandon et al. 2023).
struct ContextPlace {
  int size = 1;
  int rank = 0;
};

/// The places in the sequence of the tokens that `place` has, in the order in which it keeps them: int64
/// [length / size]. `length` is a multiple of 2 size where size > 1.
at::Tensor token_places(std::int64_t length, ContextPlace place, at::Device device);

/// Those columns of x [rows, length].
at::Tensor own_tokens(const at::Tensor& x, ContextPlace place);

}  // namespace automodel::parallel
