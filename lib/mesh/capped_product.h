// Products of sizes that a user wrote, which may be any number.
#pragma once

#include <cstdint>
#include <initializer_list>

namespace automodel::mesh {

/// The product of factors of at least 1, or 2^62 where it would be larger.
constexpr std::int64_t capped_product(std::initializer_list<std::int64_t> factors) {
  constexpr std::int64_t kCap = std::int64_t{1} << 62;
  std::int64_t out = 1;
  for (const std::int64_t factor : factors) {
    if (factor > kCap / out) return kCap;
    out *= factor;
  }
  return out;
}

}  // namespace automodel::mesh
