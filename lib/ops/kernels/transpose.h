// Transposition in registers of as many vectors as one has lanes, by shuffles that the compiler writes for its
// instruction set. AUTOMODEL_VECTORS (lib/ops/CMakeLists.txt) names the header of the set that a source is compiled
// for; another set needs another such header, nothing else.
#pragma once

#include <cstddef>
#include <utility>

#include AUTOMODEL_VECTORS

namespace automodel::ops::AUTOMODEL_ISA {
namespace {

inline Floats zeros() {
  return broadcast(0);
}

/// Lane i of the result is lane kFrom(i) of a followed by b.
template <std::size_t (*kFrom)(std::size_t)>
__attribute__((always_inline)) inline Floats shuffled(Floats a, Floats b) {
  return [&]<std::size_t... i>(std::index_sequence<i...>) __attribute__((always_inline)) {
    return __builtin_shufflevector(a, b, static_cast<int>(kFrom(i))...);
  }
  (std::make_index_sequence<static_cast<std::size_t>(kLanes)>());
}

/// Two rows interleaved inside each block of four lanes: one or two lanes at a time, from the first or the second half
/// of the block.
template <std::size_t kWide, std::size_t kHalf>
constexpr std::size_t interleaved(std::size_t lane) {
  const auto block = lane / 4 * 4, in = lane % 4;
  const bool second = in / kWide % 2 == 1;
  return block + kHalf * 2 + in / (2 * kWide) * kWide + in % kWide + (second ? std::size_t{kLanes} : 0);
}
/// Every second block of four lanes of two rows.
template <std::size_t kOdd>
constexpr std::size_t every_second(std::size_t lane) {
  return lane / 4 * 8 + kOdd * 4 + lane % 4;
}

using Square = Floats[kLanes];  // NOLINT(modernize-avoid-c-arrays): std::array takes the type without its attributes

/// Transposes kLanes x kLanes lanes in place: 4 x 4 lanes inside blocks of four, then blocks.
__attribute__((always_inline)) inline void transpose(Square& x) {
  constexpr std::size_t n = kLanes, kGroups = n / 4;
  Square t;
#pragma GCC unroll 8
  for (std::size_t i = 0; i < n; i += 2) {
    t[i] = shuffled<interleaved<1, 0>>(x[i], x[i + 1]);
    t[i + 1] = shuffled<interleaved<1, 1>>(x[i], x[i + 1]);
  }
  // x[kGroups * k + g]: line k of the group of rows 4 g to 4 g + 3, so that each line's groups are neighbours.
#pragma GCC unroll 4
  for (std::size_t g = 0; g < kGroups; ++g) {
    x[g] = shuffled<interleaved<2, 0>>(t[4 * g], t[4 * g + 2]);
    x[kGroups + g] = shuffled<interleaved<2, 1>>(t[4 * g], t[4 * g + 2]);
    x[2 * kGroups + g] = shuffled<interleaved<2, 0>>(t[4 * g + 1], t[4 * g + 3]);
    x[3 * kGroups + g] = shuffled<interleaved<2, 1>>(t[4 * g + 1], t[4 * g + 3]);
  }
  // A perfect shuffle of the blocks of two rows, once per bit of the number of groups.
  const auto blocks = [](const Square& from, Square& to) __attribute__((always_inline)) {
#pragma GCC unroll 4
    for (std::size_t k = 0; k < 4; ++k)
#pragma GCC unroll 2
      for (std::size_t g = 0; g < kGroups / 2; ++g) {
        const auto &a = from[k * kGroups + 2 * g], &b = from[k * kGroups + 2 * g + 1];
        to[k * kGroups + g] = shuffled<every_second<0>>(a, b);
        to[k * kGroups + kGroups / 2 + g] = shuffled<every_second<1>>(a, b);
      }
  };
  if constexpr (kGroups > 1) blocks(x, t);
  if constexpr (kGroups == 4) blocks(t, x);
  const Square& done = kGroups == 2 ? t : x;
  Square lines;
#pragma GCC unroll 16
  for (std::size_t i = 0; i < n; ++i) lines[i] = done[i % 4 * kGroups + i / 4];
#pragma GCC unroll 16
  for (std::size_t i = 0; i < n; ++i) x[i] = lines[i];
}

}  // namespace
}  // namespace automodel::ops::AUTOMODEL_ISA
