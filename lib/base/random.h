// Counter-based random numbers: element i of a stream is a pure function of (seed, stream name, i). Each rank computes
// just the elements it holds, in any order, and every mesh sees the same numbers.
//
// Philox4x32-10 (Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC'11). The key is the
// seed, the counter is (block, stream), and a block holds four elements. The conversion to floating point is plain IEEE
// double arithmetic (+, -, *, /, sqrt) in a fixed order, with our own polynomials instead of libm, compiled without
// contraction. The numbers are therefore bit-identical on every machine, however the compiler vectorises the loops.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>

namespace automodel {

/// The bare generator: maps a counter and a key to four random words.
std::array<std::uint32_t, 4> philox4x32(std::array<std::uint32_t, 4> counter, std::array<std::uint32_t, 2> key);

/// A 64-bit hash of a name, the same on every machine (FNV-1a, then mixed).
std::uint64_t stream_hash(std::string_view name);

/// One stream. All distributions draw from the same blocks, so give each use its own name
/// ("model.layers.0.mlp.up_proj.weight", "dropout/3", "order").
class RandomStream {
 public:
  RandomStream(std::uint64_t seed, std::string_view name) : seed_(seed), stream_(stream_hash(name)) {}

  /// Uniform over all 32-bit (64-bit) values. 32-bit elements 2 i and 2 i + 1 are the low and high half of 64-bit
  /// element i.
  std::uint32_t bits32(std::uint64_t index) const;
  std::uint64_t bits64(std::uint64_t index) const;
  /// Uniform over 0 ... bound - 1. The bias, bound / 2^64, is negligible.
  std::uint64_t below(std::uint64_t index, std::uint64_t bound) const;
  /// Uniform in [0, 1): a multiple of 2^-24, which float holds exactly.
  float uniform(std::uint64_t index) const;
  /// Standard normal (Box-Muller) from 32 uniform bits for the radius and 32 for the angle, as cuRAND does for floats.
  /// The largest magnitude is 6.77.
  double normal(std::uint64_t index) const;

  /// out[j] = uniform(first + j), and mean + deviation * normal(first + j) rounded once to float. The same numbers as
  /// the element-wise functions, an order of magnitude faster.
  void fill_uniform(std::uint64_t first, std::span<float> out) const;
  void fill_normal(std::uint64_t first, std::span<float> out, double mean = 0.0, double deviation = 1.0) const;

 private:
  std::array<std::uint32_t, 4> block(std::uint64_t index) const;

  std::uint64_t seed_;
  std::uint64_t stream_;
};

}  // namespace automodel
