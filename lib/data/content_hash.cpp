#include "data/content_hash.h"

#include <cstring>

#include <fmt/format.h>

namespace automodel::data {
namespace {

// Odd constants, from the digits of pi.
constexpr std::array<std::uint64_t, 2> kFactors = {0xA4093822299F31D1, 0x082EFA98EC4E6C89};

std::uint64_t mix(std::uint64_t value, std::uint64_t factor) {
  const auto product = static_cast<unsigned __int128>(value) * factor;
  return static_cast<std::uint64_t>(product) ^ static_cast<std::uint64_t>(product >> 64);
}

}  // namespace

void ContentHash::add(std::string_view part) {
  auto take = [&](std::uint64_t word) {
    state_[0] = mix(state_[0] ^ word, kFactors[0]) + word;
    state_[1] = mix(state_[1] + word, kFactors[1]) ^ state_[0];
  };
  std::size_t at = 0;
  for (std::uint64_t word = 0; at + 8 <= part.size(); at += 8) {
    std::memcpy(&word, part.data() + at, 8);
    take(word);
  }
  std::uint64_t rest = 0;
  if (at < part.size()) std::memcpy(&rest, part.data() + at, part.size() - at);
  take(rest);
  take(part.size() + 1);
}

std::array<std::uint64_t, 2> ContentHash::value() const {
  return {mix(state_[0] ^ state_[1], kFactors[0]), mix(state_[1], kFactors[1])};
}

std::string ContentHash::hex() const {
  return fmt::format("{:016x}{:016x}", value()[0], value()[1]);
}

}  // namespace automodel::data
