// Escaping text for HTML.
#pragma once

#include <string>
#include <string_view>

namespace automodel::report {

/// `text` escaped for HTML content and attribute values.
inline std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) switch (c) {
      case '&': out += "&amp;"; break;
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '"': out += "&quot;"; break;
      default: out += c;
    }
  return out;
}

}  // namespace automodel::report
