// Capabilities of the CPU this process runs on.
#pragma once

#include <cstdint>

namespace automodel {

/// The best available instructions that multiply bfloat16 and accumulate in float32.
/// kArm is BFDOT, which Neoverse N2, V1 and later have.
enum class BFloat16Unit : std::int8_t { kNone, kAvx512, kAmx, kArm };

/// Whether an x86 processor computes AVX2 in 128-bit halves: AMD's Zen and Zen+, and Hygon's Dhyana, which is a Zen.
/// Other vendors do not have these families.
constexpr bool avx2_in_halves(int family, int model) {
  return (family == 23 && model < 0x30) || family == 24;
}

struct Processor {
  bool intel = false;
  bool halves = false;  ///< avx2_in_halves()
  bool crc32 = false;   ///< has a CRC-32C instruction (x86-64: SSE 4.2)
  BFloat16Unit bfloat16 = BFloat16Unit::kNone;
};

const Processor& processor();

}  // namespace automodel
