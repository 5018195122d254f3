#include "base/base64.h"

#include <cstdint>

namespace automodel {

std::string base64(std::string_view bytes) {
  constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  std::uint32_t bits = 0;
  int count = 0;
  for (const char c : bytes) {
    bits = bits << 8 | static_cast<unsigned char>(c);
    for (count += 8; count >= 6; count -= 6) out += kDigits[bits >> (count - 6) & 63u];
  }
  if (count > 0) out += kDigits[bits << (6 - count) & 63u];
  return out.append((4 - out.size() % 4) % 4, '=');
}

}  // namespace automodel
