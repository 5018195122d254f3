/// \file
/// Numbers of experts in tables of tokens (DeepSeek V4), as weights of floating-point types hold them: bfloat16 has
/// integers up to 256 exactly, so that memory has the larger ones as 256 minus the number, which serves up to 512.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>

namespace automodel {

inline constexpr std::int64_t kExactIntegers = 256;
inline constexpr int kMostNumberedExperts = 512;

/// The value in memory; not a number for a negative one, which names no expert and would be read as another.
constexpr double stored_expert(std::int64_t number) {
  if (number < 0) return std::numeric_limits<double>::quiet_NaN();
  return static_cast<double>(number > kExactIntegers ? kExactIntegers - number : number);
}

/// Back from stored_expert().
inline std::int64_t number_of_expert(double stored) {
  const std::int64_t number = std::llround(stored);
  return number < 0 ? kExactIntegers - number : number;
}

}  // namespace automodel
