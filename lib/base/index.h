// Strongly typed indices, so that a stage, a microbatch and a rank cannot be mixed up.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>

namespace automodel {

template <class Tag>
struct Index {
  std::int32_t value = 0;
  auto operator<=>(const Index&) const = default;
  /// For indexing a vector.
  constexpr std::size_t at() const { return static_cast<std::size_t>(value); }
};

}  // namespace automodel
