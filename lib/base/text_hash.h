// A hash of a list of strings.
#pragma once

#include <cstdint>
#include <string_view>

namespace automodel {

/// FNV-1a, the same on every rank regardless of platform. Strings are terminated, so {"ab", "c"} and {"a", "bc"}
/// differ.
class TextHash {
 public:
  void mix(std::string_view text) {
    for (const char c : text) value_ = (value_ ^ static_cast<unsigned char>(c)) * kPrime;
    value_ = (value_ ^ 0xFFU) * kPrime;
  }
  std::uint64_t value() const { return value_; }

 private:
  static constexpr std::uint64_t kPrime = 1099511628211ULL;
  std::uint64_t value_ = 14695981039346656037ULL;
};

}  // namespace automodel
