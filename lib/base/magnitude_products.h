// How much of what adapters' magnitudes multiply is computed at one time.
#pragma once

#include <cstdint>

namespace automodel {

/// Elements of W x + scale B A x, 16 MiB in float32: of 256 rows of a result of 16,384.
inline constexpr std::int64_t kMagnitudeProducts = std::int64_t{1} << 22;

}  // namespace automodel
