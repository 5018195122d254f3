// How much of a recurrent state (gated delta rules, Mamba-2, lightning attention) is computed at one time.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

namespace automodel {

/// Tokens of a chunk, inside which the recurrence is matmuls.
inline constexpr std::int64_t kScanChunk = 64;

/// Chunk size of a sequence, `most` or less: a shorter one is one chunk, rounded up to a power of two.
inline std::int64_t scan_chunk(std::int64_t tokens, std::int64_t most = kScanChunk) {
  const auto some = static_cast<std::uint64_t>(std::max<std::int64_t>(tokens, 1));
  return std::min(most, static_cast<std::int64_t>(std::bit_ceil(some)));
}

/// Tokens times heads that are computed at one time. On a CPU their matrices of token pairs take 4 MiB. On a GPU more
/// heads mean fewer steps from chunk to chunk, each of which is a few small kernels; in float32 a delta rule of width
/// 128 then holds 13 to 18 KiB for each, 17 GiB at most.
inline constexpr std::int64_t kScanOnHost = std::int64_t{1} << 14, kScanOnDevice = std::int64_t{1} << 20;

}  // namespace automodel
