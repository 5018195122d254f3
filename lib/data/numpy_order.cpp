#include "data/numpy_order.h"

#include <array>
#include <bit>
#include <numeric>
#include <optional>
#include <utility>

namespace automodel::data {
namespace {

__extension__ typedef unsigned __int128 Wide;

/// numpy's SeedSequence: expands a seed into words of entropy.
class SeedSequence {
 public:
  explicit SeedSequence(std::uint64_t seed) {
    std::vector<std::uint32_t> entropy;
    do entropy.push_back(static_cast<std::uint32_t>(seed));
    while ((seed >>= 32) != 0);
    for (std::size_t i = 0; i < pool_.size(); ++i) pool_[i] = hashed(i < entropy.size() ? entropy[i] : 0);
    for (std::size_t from = 0; from < pool_.size(); ++from)
      for (std::size_t to = 0; to < pool_.size(); ++to)
        if (from != to) pool_[to] = mixed(pool_[to], hashed(pool_[from]));
  }

  std::uint32_t next() {
    std::uint32_t value = pool_[given_++ % pool_.size()];
    value ^= out_;
    out_ *= 0x58F38DEDU;
    value *= out_;
    return value ^ (value >> 16);
  }

 private:
  std::uint32_t hashed(std::uint32_t value) {
    value ^= in_;
    in_ *= 0x931E8875U;
    value *= in_;
    return value ^ (value >> 16);
  }
  static std::uint32_t mixed(std::uint32_t x, std::uint32_t y) {
    const std::uint32_t value = 0xCA01F9DDU * x - 0x4973F715U * y;
    return value ^ (value >> 16);
  }

  std::array<std::uint32_t, 4> pool_{};
  std::uint32_t in_ = 0x43B0D7E5U;
  std::uint32_t out_ = 0x8B51F9DDU;
  std::size_t given_ = 0;
};

class Pcg64 {
 public:
  explicit Pcg64(std::uint64_t seed) {
    SeedSequence words(seed);
    std::array<std::uint64_t, 4> parts{};
    for (auto& part : parts) {
      const std::uint64_t low = words.next();
      part = low | std::uint64_t{words.next()} << 32;
    }
    increment_ = (Wide{parts[2]} << 64 | parts[3]) << 1 | 1;
    step();
    state_ += Wide{parts[0]} << 64 | parts[1];
    step();
  }

  /// Uniform in [0, top], by rejection under the smallest covering bit mask.
  std::uint32_t up_to(std::uint32_t top) {
    const auto mask = static_cast<std::uint32_t>((std::uint64_t{1} << std::bit_width(top)) - 1);
    for (;;) {
      const std::uint32_t value = half() & mask;
      if (value <= top) return value;
    }
  }

 private:
  void step() {
    constexpr Wide kMultiplier = Wide{2549297995355413924U} << 64 | 4865540595714422341U;
    state_ = state_ * kMultiplier + increment_;
  }
  /// 32 bits; each 64-bit output yields its low half first.
  std::uint32_t half() {
    if (kept_) return *std::exchange(kept_, std::nullopt);
    step();
    const std::uint64_t folded = static_cast<std::uint64_t>(state_ >> 64) ^ static_cast<std::uint64_t>(state_);
    const std::uint64_t value = std::rotr(folded, static_cast<int>(state_ >> 122));
    kept_ = static_cast<std::uint32_t>(value >> 32);
    return static_cast<std::uint32_t>(value);
  }

  Wide state_ = 0;
  Wide increment_ = 0;
  std::optional<std::uint32_t> kept_;
};

}  // namespace

std::vector<std::int64_t> numpy_permutation(std::uint64_t seed, std::int64_t n) {
  std::vector<std::int64_t> out(static_cast<std::size_t>(n));
  std::iota(out.begin(), out.end(), 0);
  Pcg64 random(seed);
  for (std::size_t i = out.size(); i-- > 1;) std::swap(out[i], out[random.up_to(static_cast<std::uint32_t>(i))]);
  return out;
}

}  // namespace automodel::data
