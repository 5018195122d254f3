// Conversion from the type of computation to the type of a tensor, in a form that vectorizes.
#pragma once

#include <bit>
#include <cstdint>
#include <type_traits>

#include <c10/util/BFloat16.h>

namespace automodel::ops::AUTOMODEL_ISA {
namespace {

/// Rounds to the nearest T, ties to even. For bfloat16 the same bits as c10's conversion, but branch-free, because
/// compilers do not vectorize loops with that branch.
template <class T, class C>
inline T rounded(C x) {
  if constexpr (std::is_same_v<T, c10::BFloat16>) {
    const auto bits = std::bit_cast<std::uint32_t>(static_cast<float>(x));
    const std::uint32_t nearest = (bits + 0x7FFFU + (bits >> 16 & 1U)) >> 16;
    const bool number = (bits & 0x7FFFFFFFU) <= 0x7F800000U;
    return {static_cast<unsigned short>(number ? nearest : 0x7FC0U), c10::BFloat16::from_bits()};
  } else {
    return static_cast<T>(x);
  }
}

}  // namespace
}  // namespace automodel::ops::AUTOMODEL_ISA
