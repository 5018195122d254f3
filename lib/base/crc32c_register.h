// The inner loop of crc32c.cpp, by a table and by an instruction: the build compiles crc32c_sse42.cpp on x86-64,
// crc32c_arm.cpp on Arm and crc32c_portable.cpp elsewhere.
#pragma once

#include <cstddef>
#include <cstdint>

namespace automodel::detail {

/// Table-driven update of the raw CRC register by `size` bytes, without the initial and final inversion.
std::uint32_t crc32c_by_table(std::uint32_t state, const char* bytes, std::size_t size);
/// The same by the CPU's CRC instruction, which it must have (Processor::crc32).
std::uint32_t crc32c_by_instruction(std::uint32_t state, const char* bytes, std::size_t size);

}  // namespace automodel::detail
