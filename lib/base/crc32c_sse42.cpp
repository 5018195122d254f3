#include <cstring>

#include <nmmintrin.h>

#include "base/crc32c_register.h"

namespace automodel::detail {

__attribute__((target("sse4.2"))) std::uint32_t crc32c_by_instruction(std::uint32_t state, const char* bytes,
                                                                      std::size_t size) {
  std::uint64_t wide = state;
  for (; size >= 8; bytes += 8, size -= 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes, 8);
    wide = _mm_crc32_u64(wide, word);
  }
  auto narrow = static_cast<std::uint32_t>(wide);
  for (; size > 0; ++bytes, --size) narrow = _mm_crc32_u8(narrow, static_cast<unsigned char>(*bytes));
  return narrow;
}

}  // namespace automodel::detail
