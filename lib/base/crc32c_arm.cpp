#include <cstring>

#include <arm_acle.h>

#include "base/crc32c_register.h"

namespace automodel::detail {

__attribute__((target("+crc"))) std::uint32_t crc32c_by_instruction(std::uint32_t state, const char* bytes,
                                                                    std::size_t size) {
  for (; size >= 8; bytes += 8, size -= 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes, 8);
    state = __crc32cd(state, word);
  }
  for (; size > 0; ++bytes, --size) state = __crc32cb(state, static_cast<unsigned char>(*bytes));
  return state;
}

}  // namespace automodel::detail
