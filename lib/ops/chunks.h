// Sequences cut into chunks of tokens for recurrences: inside a chunk tokens meet in matrix products, between chunks a
// state is handed on. What crosses the start of a packed document is masked.
#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

namespace automodel::ops {

/// A part of a batch of sequences that is computed at one time: some of its rows and heads, so that what it takes stays
/// in the caches of a CPU. Heads are those of neighbouring groups, or some of one group's.
struct HeadSlice {
  std::int64_t row = 0, rows = 0, group = 0, groups = 0, head = 0, heads = 0;
  /// The part of [batch, ...], of [batch, tokens, groups, ...], of [batch, tokens, heads, ...]; views.
  at::Tensor of_rows(const at::Tensor& x) const { return x.defined() ? x.narrow(0, row, rows) : x; }
  at::Tensor of_groups(const at::Tensor& x) const { return of_rows(x).narrow(2, group, groups); }
  at::Tensor of_heads(const at::Tensor& x) const { return x.defined() ? of_rows(x).narrow(2, head, heads) : x; }
};

struct ScanOptions {
  std::int64_t chunk = 64;   ///< tokens of a chunk, a power of two; fewer where the sequence is shorter
  std::int64_t slice = 0;    ///< tokens times heads that are computed at one time; 0: as suits the device
  at::Tensor segments = {};  ///< int64 [batch, tokens]: number of the packed document of each token, the tokens of one
                             ///< next to each other; undefined: one document
  ScanOptions of(const HeadSlice& part) const { return {chunk, slice, part.of_rows(segments)}; }
};

/// How a batch of sequences is cut: `count` chunks of `size` tokens, the last one filled up with tokens of zeros.
struct Chunks {
  std::int64_t batch = 0, tokens = 0, size = 0, count = 0;
  Chunks(std::int64_t batch, std::int64_t tokens, const ScanOptions& options);
  std::int64_t filling() const { return size * count - tokens; }

  /// x [batch, tokens, heads, ...] to [batch, heads, count, size, ...], contiguous and of type `type`.
  at::Tensor cut(const at::Tensor& x, at::ScalarType type) const;
  /// The way back, into or onto `out` [batch, tokens, heads, ...].
  void join(const at::Tensor& x, at::Tensor out) const;
  void join_onto(const at::Tensor& x, at::Tensor out) const;
};

/// The slices that make up values [batch, tokens, heads, ...] with `groups` groups of heads.
std::vector<HeadSlice> head_slices(const at::Tensor& values, std::int64_t groups, const ScanOptions& options);

/// Which tokens see each other, by documents. All of type `type`, 1 or 0.
struct DocumentMasks {
  at::Tensor pairs = {};    ///< bool [batch or 1, 1, count or 1, size, size]: token i sees token j <= i of its chunk
  at::Tensor sees = {};     ///< [batch, 1, count, size]: the token sees the state that came into its chunk
  at::Tensor reaches = {};  ///< [batch, 1, count, size]: the token is part of the state that leaves
  at::Tensor passes = {};   ///< [batch, 1, count]: the state that came in is part of it
};
/// The last three are undefined where there is one document.
DocumentMasks document_masks(const Chunks& chunks, const ScanOptions& options, at::ScalarType type, at::Device device);

/// What a decay does inside chunks: `log` [batch, heads, count, size] or, for each channel, [..., size, width] are the
/// logarithms of the factors, at most 0, that the state is multiplied with before each token.
struct Decays {
  at::Tensor sum = {};   ///< of `log` from the chunk's start to each token, itself included
  at::Tensor in = {};    ///< factor of the state that came in, at each token
  at::Tensor out = {};   ///< factor of each token in the state that leaves
  at::Tensor pass = {};  ///< factor of the state that came in, in it: [batch, heads, count] or [..., width]
  Decays(const at::Tensor& log, const DocumentMasks& masks);
};

/// Factors of token j at token i, [..., size, size], from the `sum` [..., size] of a decay that all channels share;
/// 0 where `pairs` is false.
at::Tensor pair_factors(const at::Tensor& sum, const at::Tensor& pairs);

/// Gradient of `log` from that of `sum` [..., size] or [..., size, width] along dimension 3.
at::Tensor log_gradient(const at::Tensor& sum_gradient);

/// Products of matrices over the same leading dimensions, those in front of the last two; one of the operands may be
/// turned. ATen's bmm without copies where an operand is contiguous.
at::Tensor multiply(const at::Tensor& a, const at::Tensor& b);

}  // namespace automodel::ops
