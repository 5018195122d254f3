// Capabilities of the CPU this process runs on.
#pragma once

#include <cstdint>

namespace automodel {

/// The best available instructions that multiply bfloat16 and accumulate in float32.
/// kArm is BFDOT, which Neoverse N2, V1 and later have.
enum class BFloat16Unit : std::int8_t { kNone, kAvx512, kAmx, kArm };

struct Processor {
  bool intel = false;
  bool crc32 = false;  ///< has a CRC-32C instruction (x86-64: SSE 4.2)
  BFloat16Unit bfloat16 = BFloat16Unit::kNone;
};

const Processor& processor();

}  // namespace automodel
