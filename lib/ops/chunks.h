// Sequences cut into chunks of tokens for recurrences: within a chunk tokens interact through matmuls, between chunks a
// state is passed on. Masks stop both at the boundaries of packed documents.
#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include "base/scan_slice.h"

namespace automodel::ops {

/// The part of a batch that is computed at one time: some of its rows and heads, chosen so that the working set stays
/// in a CPU's caches. It covers whole neighbouring groups of heads, or some heads of one group.
struct HeadSlice {
  std::int64_t row = 0, rows = 0, group = 0, groups = 0, head = 0, heads = 0;
  /// The slice of x [batch, ...], [batch, tokens, groups, ...] or [batch, tokens, heads, ...]; views.
  at::Tensor of_rows(const at::Tensor& x) const { return x.defined() ? x.narrow(0, row, rows) : x; }
  at::Tensor of_groups(const at::Tensor& x) const { return of_rows(x).narrow(2, group, groups); }
  at::Tensor of_heads(const at::Tensor& x) const { return x.defined() ? of_rows(x).narrow(2, head, heads) : x; }
};

struct ScanOptions {
  std::int64_t chunk = kScanChunk;  ///< tokens per chunk, a power of two; less for shorter sequences
  std::int64_t slice = 0;           ///< tokens times heads that are computed at one time; 0: a default for the device
  at::Tensor segments = {};         ///< int64 [batch, tokens]: number of each token's packed document, whose tokens are
                                    ///< contiguous; undefined: one document
  ScanOptions of(const HeadSlice& part) const { return {chunk, slice, part.of_rows(segments)}; }
};

/// How a batch of sequences is cut: `count` chunks of `size` tokens, the last one padded with zero tokens.
struct Chunks {
  std::int64_t batch = 0, tokens = 0, size = 0, count = 0;
  Chunks(std::int64_t batch, std::int64_t tokens, const ScanOptions& options);
  std::int64_t filling() const { return size * count - tokens; }

  /// x [batch, tokens, heads, ...] to [batch, heads, count, size, ...], contiguous and of type `type`.
  at::Tensor cut(const at::Tensor& x, at::ScalarType type) const;
  /// The inverse, written to or (join_onto) added to `out` [batch, tokens, heads, ...].
  void join(const at::Tensor& x, at::Tensor out) const;
  void join_onto(const at::Tensor& x, at::Tensor out) const;
};

/// The slices that together cover values [batch, tokens, heads, ...] with `groups` groups of heads.
std::vector<HeadSlice> head_slices(const at::Tensor& values, std::int64_t groups, const ScanOptions& options);

/// Which tokens see each other, given the documents. All but `pairs` hold 1 or 0 in the type of computation.
struct DocumentMasks {
  at::Tensor pairs = {};    ///< bool [batch or 1, 1, count or 1, size, size]: token i sees token j <= i of its chunk
  at::Tensor sees = {};     ///< [batch, 1, count, size]: the token sees its chunk's incoming state
  at::Tensor reaches = {};  ///< [batch, 1, count, size]: the token contributes to its chunk's outgoing state
  at::Tensor passes = {};   ///< [batch, 1, count]: the incoming state contributes to the outgoing one
};
/// All but `pairs` are undefined if there is one document.
DocumentMasks document_masks(const Chunks& chunks, const ScanOptions& options, at::ScalarType type, at::Device device);

/// Decay factors within chunks. `log` [batch, heads, count, size], or per channel [..., size, width], holds the
/// logarithms (at most 0) of the factors that the state is multiplied with before each token.
struct Decays {
  at::Tensor sum = {};   ///< cumulative sum of `log` from the chunk's start, each token included
  at::Tensor in = {};    ///< factor of the incoming state, as each token sees it
  at::Tensor out = {};   ///< factor of each token in the outgoing state
  at::Tensor pass = {};  ///< factor of the incoming state in the outgoing one: [batch, heads, count] or [..., width]
  Decays(const at::Tensor& log, const DocumentMasks& masks);
};

/// Decay factors from token j to token i, [..., size, size], from the `sum` [..., size] of a decay that all channels
/// share; 0 where `pairs` is false.
at::Tensor pair_factors(const at::Tensor& sum, const at::Tensor& pairs);

/// Gradient of `log` from that of `sum` [..., size] or [..., size, width]; both run over tokens in dimension 3.
at::Tensor log_gradient(const at::Tensor& sum_gradient);

/// Batched matmul over equal leading dimensions (all but the last two); an operand may be transposed. ATen's bmm,
/// without copies of contiguous operands.
at::Tensor multiply(const at::Tensor& a, const at::Tensor& b);

}  // namespace automodel::ops
