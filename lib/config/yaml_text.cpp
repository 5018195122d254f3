#include "config/yaml_text.h"

#include <algorithm>
#include <array>

#include <nlohmann/json.hpp>

namespace automodel::config {

bool is_yaml_literal(std::string_view text) {
  constexpr std::array<std::string_view, 3> kRefused{"\xe2\x80\xa8", "\xe2\x80\xa9",
                                                     "\xef\xbb\xbf"};  // U+2028, U+2029, U+FEFF
  for (std::size_t at = 0; at < text.size(); ++at) {
    const auto c = static_cast<unsigned char>(text[at]);
    if ((c < 0x20 && c != '\n' && c != '\t') || c == 0x7f) return false;
    // U+0080 to U+009F
    if (c == 0xc2 && at + 1 < text.size() && static_cast<unsigned char>(text[at + 1]) < 0xa0) return false;
  }
  return std::ranges::none_of(kRefused, [&](auto bytes) { return text.find(bytes) != std::string_view::npos; });
}

std::string yaml_quoted(std::string_view text) {
  std::string out = nlohmann::json(text).dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
  for (auto at = out.find('\x7f'); at != std::string::npos; at = out.find('\x7f', at)) out.replace(at, 1, "\\u007f");
  return out;
}

}  // namespace automodel::config
