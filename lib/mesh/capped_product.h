// Overflow-safe products of user-given sizes.
#pragma once

#include <cstdint>
#include <initializer_list>

namespace automodel::mesh {

inline constexpr std::int64_t kProductCap = std::int64_t{1} << 62;

/// The product of `factors` (each at least 1), capped at kProductCap.
constexpr std::int64_t capped_product(std::initializer_list<std::int64_t> factors) {
  std::int64_t out = 1;
  for (const std::int64_t factor : factors) {
    if (factor > kProductCap / out) return kProductCap;
    out *= factor;
  }
  return out;
}

}  // namespace automodel::mesh
