#include "base/visible_text.h"

namespace automodel {

std::string visible_text(std::string_view text) {
  constexpr std::string_view kReplacement = "\xEF\xBF\xBD";
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    const auto next = i + 1 < text.size() ? static_cast<unsigned char>(text[i + 1]) : 0u;
    const bool second_set = byte == 0xC2 && next >= 0x80 && next < 0xA0;  // U+0080 to U+009F
    if ((byte < 0x20 && byte != '\n' && byte != '\t') || byte == 0x7F || second_set)
      out += kReplacement;
    else
      out += text[i];
    if (second_set) ++i;
  }
  return out;
}

}  // namespace automodel
