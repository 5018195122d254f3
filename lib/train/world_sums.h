// Sums over all ranks of a few numbers that have names.
#pragma once

#include <array>
#include <bit>
#include <span>
#include <type_traits>

#include "comm/world.h"

namespace automodel::train {

/// Both become their element-wise sums over all ranks, in one all-reduce.
void sum_over_world(comm::World& world, std::span<double> values, std::span<double> more = {});

/// The same for a struct whose members are all of type double.
template <class Sums>
void sum_over_world(comm::World& world, Sums& sums, std::span<double> more = {}) {
  static_assert(std::is_trivially_copyable_v<Sums> && sizeof(Sums) % sizeof(double) == 0);
  auto values = std::bit_cast<std::array<double, sizeof(Sums) / sizeof(double)>>(sums);
  sum_over_world(world, std::span<double>(values), more);
  sums = std::bit_cast<Sums>(values);
}

}  // namespace automodel::train
