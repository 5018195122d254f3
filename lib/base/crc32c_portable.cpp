#include "base/crc32c_register.h"

namespace automodel::detail {

std::uint32_t crc32c_by_instruction(std::uint32_t state, const char* bytes, std::size_t size) {
  return crc32c_by_table(state, bytes, size);
}

}  // namespace automodel::detail
