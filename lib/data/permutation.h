// A shuffled order whose k-th element is computed rather than stored.
#pragma once

#include <array>
#include <cstdint>

namespace automodel::data {

/// A permutation of 0 ... n - 1 chosen by `key`: a Feistel network over the smallest power of two that covers n,
/// applied until the result is below n (cycle walking; Black and Rogaway, "Ciphers with arbitrary finite domains",
/// 2002). An element takes fewer than two passes on average, for any n.
class Permutation {
 public:
  Permutation(std::uint64_t n, std::uint64_t key);
  /// The image of `i` < n.
  std::uint64_t operator()(std::uint64_t i) const;

 private:
  static constexpr int kRounds = 12;
  std::uint64_t n_;
  int left_bits_;
  int right_bits_;
  std::array<std::uint64_t, kRounds> keys_;
};

}  // namespace automodel::data
