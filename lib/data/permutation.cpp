#include "data/permutation.h"

#include <algorithm>
#include <bit>

#include "base/error.h"

namespace automodel::data {
namespace {

/// Mixes every bit into every other (the finalizer of SplitMix64; Steele, Lea, Flood, 2014).
std::uint64_t mixed(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9U;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBU;
  return x ^ (x >> 31);
}

}  // namespace

Permutation::Permutation(std::uint64_t n, std::uint64_t key) : n_(n) {
  AUTOMODEL_CHECK(n > 0 && n <= std::uint64_t{1} << 62, "a permutation has between 1 and 2^62 elements");
  const int bits = std::max(2, static_cast<int>(std::bit_width(n - 1)));  // at least one bit per side
  left_bits_ = bits - bits / 2;
  right_bits_ = bits / 2;
  for (std::uint64_t round = 0; round < kRounds; ++round) keys_[round] = mixed(key + (round + 1) * 0x9E3779B97F4A7C15U);
}

std::uint64_t Permutation::operator()(std::uint64_t i) const {
  const std::uint64_t left_mask = (std::uint64_t{1} << left_bits_) - 1;
  const std::uint64_t right_mask = (std::uint64_t{1} << right_bits_) - 1;
  do {
    std::uint64_t left = i >> right_bits_;
    std::uint64_t right = i & right_mask;
    for (std::size_t round = 0; round < kRounds; round += 2) {
      left ^= mixed(right ^ keys_[round]) & left_mask;
      right ^= mixed(left ^ keys_[round + 1]) & right_mask;
    }
    i = left << right_bits_ | right;
  } while (i >= n_);
  return i;
}

}  // namespace automodel::data
