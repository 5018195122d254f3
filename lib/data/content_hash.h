// A name derived from content.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace automodel::data {

/// A 128-bit hash that depends on every byte and on the boundaries between parts; the same on every machine and in
/// every version. Not cryptographic. Fast enough to hash files at page cache speed.
class ContentHash {
 public:
  void add(std::string_view part);
  std::array<std::uint64_t, 2> value() const;
  /// The same as 32 hexadecimal digits.
  std::string hex() const;

 private:
  std::array<std::uint64_t, 2> state_ = {0x243F6A8885A308D3, 0x13198A2E03707344};
};

}  // namespace automodel::data
