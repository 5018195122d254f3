// Capabilities of the CPU this process runs on.
#pragma once

#include <cstdint>

namespace automodel {

/// The best available instructions that multiply bfloat16 and accumulate in float32.
enum class BFloat16Unit : std::int8_t { kNone, kAvx512, kAmx };

struct Processor {
  bool intel = false;
  bool crc32 = false;  ///< SSE 4.2, which has the CRC-32C instruction
  BFloat16Unit bfloat16 = BFloat16Unit::kNone;
};

const Processor& processor();

}  // namespace automodel
