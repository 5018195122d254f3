// The inner loop of crc32c.cpp in two forms; the build takes crc32c_sse42.cpp on x86-64, else crc32c_portable.cpp.
#pragma once

#include <cstddef>
#include <cstdint>

namespace automodel::detail {

/// The register after `size` more bytes (nothing is inverted before or after), by tables.
std::uint32_t crc32c_by_table(std::uint32_t state, const char* bytes, std::size_t size);
/// The same, with the CPU's instruction where it has one.
std::uint32_t crc32c_fastest(std::uint32_t state, const char* bytes, std::size_t size);

}  // namespace automodel::detail
