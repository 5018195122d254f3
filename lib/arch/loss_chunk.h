// Chunk size for computing the head and the loss chunk by chunk, which limits how many logits exist at once.
#pragma once

#include <algorithm>
#include <cstdint>

namespace automodel::arch {

/// With fewer rows the GEMMs become bound by reading the weight and its gradient, which every chunk reads in full.
inline constexpr std::int64_t kLeastLossChunk = 256;

/// Tokens per chunk: `asked`, or if that is 0, enough that one chunk's logits are about as large as the hidden states
/// of all `tokens`: ceil(tokens * hidden / vocabulary), but at least kLeastLossChunk. At most `tokens`.
inline std::int64_t loss_chunk(std::int64_t tokens, std::int64_t hidden, std::int64_t vocabulary, std::int64_t asked) {
  const auto columns = std::max<std::int64_t>(1, vocabulary);
  const auto even = std::max(kLeastLossChunk, (tokens * hidden + columns - 1) / columns);
  return std::max<std::int64_t>(1, std::min(tokens, asked > 0 ? asked : even));
}

}  // namespace automodel::arch
