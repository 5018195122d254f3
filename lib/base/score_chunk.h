// When attention cannot use a fused kernel, how many scores it then materialises at once, and the size of lists of
// keys.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace automodel {

/// The widest head (elements of its query, key or value) that the fused GPU kernels support.
inline constexpr std::int64_t kWidestFusedHead = 256;

/// Upper bound on the scores held at once, over all heads and batch rows: 8 MiB of float32 on a CPU, about its cache
/// size; 64 MiB on a GPU, enough work per kernel to keep it busy.
inline constexpr std::int64_t kScoresOnHost = std::int64_t{1} << 21, kScoresOnDevice = std::int64_t{1} << 24;

/// Number of queries to process at a time, each of which sees the `reach` keys up to its own at most: all `keys`, or
/// those of a window. A part's scores are of all keys that one of its queries sees; `heads` is summed over batch rows.
inline std::int64_t score_rows(std::int64_t heads, std::int64_t queries, std::int64_t keys, std::int64_t reach,
                               bool on_host) {
  const auto most = (on_host ? kScoresOnHost : kScoresOnDevice) / std::max<std::int64_t>(1, heads);
  // rows queries of a window see rows + reach - 1 keys, of which there may be fewer.
  const double others = static_cast<double>(std::min(keys, reach) - 1);
  const double root = (std::sqrt(others * others + 4.0 * static_cast<double>(most)) - others) / 2;
  const auto rows = std::max(most / std::max<std::int64_t>(1, keys), static_cast<std::int64_t>(root));
  return std::clamp<std::int64_t>(rows, 1, std::max<std::int64_t>(1, queries));
}

/// Bytes of each number in a list of chosen keys, or of blocks of keys, of so many keys.
inline int listed_key_bytes(std::int64_t keys) {
  return keys <= 32768 ? 2 : 4;
}

}  // namespace automodel
