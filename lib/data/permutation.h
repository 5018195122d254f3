// A shuffled order whose k-th element is computed, not stored.
#pragma once

#include <array>
#include <cstdint>

namespace automodel::data {

/// A permutation of 0 ... n - 1 chosen by `key`: a Feistel network over the smallest power of two that holds n, walked
/// until it lands below n (Black and Rogaway, "Ciphers with arbitrary finite domains", 2002). An element costs less
/// than two passes on average, whatever n.
class Permutation {
 public:
  Permutation(std::uint64_t n, std::uint64_t key);
  /// The place that `i` < n goes to.
  std::uint64_t operator()(std::uint64_t i) const;

 private:
  static constexpr int kRounds = 12;
  std::uint64_t n_;
  int left_bits_;
  int right_bits_;
  std::array<std::uint64_t, kRounds> keys_;
};

}  // namespace automodel::data
