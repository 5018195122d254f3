// Python's `random` module, bit for bit.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

namespace automodel::data {

/// `random.seed(seed)` and the draws that follow: a Mersenne Twister (Matsumoto and Nishimura, 1998) seeded from an
/// array of words.
class PythonRandom {
 public:
  explicit PythonRandom(std::uint64_t seed);
  /// `random()`: 53 bits in [0, 1).
  double uniform();
  /// `gauss(mean, deviation)`: generates values in pairs and keeps the second for the next call.
  double gauss(double mean, double deviation);
  /// The index that `choices` draws from `count` elements.
  std::int64_t choice(std::int64_t count);

 private:
  static constexpr std::size_t kWords = 624;
  std::uint32_t next();

  std::array<std::uint32_t, kWords> state_;
  std::size_t at_ = kWords;
  std::optional<double> waiting_ = {};
};

}  // namespace automodel::data
