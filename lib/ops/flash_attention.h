// LibTorch's fused attention for GPUs: its forward and backward passes as two functions, for 16-bit types and heads of
// up to 256 elements. The only interface to it; tests replace it by an emulation on CPU tensors.
#pragma once

#include <array>
#include <cstdint>
#include <utility>

#include <ATen/core/Tensor.h>

namespace automodel::ops {

/// Arguments of both passes. Query i of n sees keys i + m - n - left to i + m - n + right of m: the last query is
/// aligned with the last key.
struct FlashCall {
  at::Tensor q = {};  ///< [batch, tokens, heads, width], or with `starts` [tokens of all documents, heads, width]
  at::Tensor k = {}, v = {};
  at::Tensor starts = {};  ///< int32 [documents + 1]: cumulative sequence lengths, the same for queries and keys
  std::int64_t queries = 0, keys = 0;  ///< tokens per sequence, or of the longest document
  double scale = 1;
  std::int64_t left = -1, right = -1;  ///< -1: unlimited
};

struct FlashKernels {
  /// The result, in q's layout, and the log of the sum of exponentiated scores, float32 [batch, heads, queries] or,
  /// with `starts`, [heads, tokens].
  std::pair<at::Tensor, at::Tensor> (*forward)(const FlashCall& call);
  /// Gradients of q, k and v. `out` and `logsum` (contiguous) may be those of attention over more keys than the call
  /// has.
  std::array<at::Tensor, 3> (*backward)(const at::Tensor& gradient, const FlashCall& call, const at::Tensor& out,
                                        const at::Tensor& logsum);
};

/// The kernels for tensors like x, or null: LibTorch's on GPUs, for float16 and bfloat16, heads up to kWidestFusedHead.
const FlashKernels* flash_kernels(const at::Tensor& x);

/// For tests: from now on CPU tensors use these; null: none.
void flash_on_host_with(const FlashKernels* kernels);

}  // namespace automodel::ops
