// How much of a recurrent state (gated delta rules, Mamba-2, lightning attention) is computed at one time.
#pragma once

#include <cstdint>

namespace automodel {

/// Tokens of a chunk, inside which the recurrence is matmuls; shorter sequences are one chunk.
inline constexpr std::int64_t kScanChunk = 64;

/// Tokens times heads that are computed at one time. On a CPU their matrices of token pairs take 4 MiB. On a GPU more
/// heads mean fewer steps from chunk to chunk, each of which is a few small kernels; in float32 a delta rule of width
/// 128 then holds 13 to 18 KiB for each, 17 GiB at most.
inline constexpr std::int64_t kScanOnHost = std::int64_t{1} << 14, kScanOnDevice = std::int64_t{1} << 20;

}  // namespace automodel
