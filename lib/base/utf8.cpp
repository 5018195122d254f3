#include "base/utf8.h"

#include <fmt/format.h>

namespace automodel {
namespace {

/// The code point of a valid character of `length` bytes.
char32_t code_point(std::string_view text, std::size_t length) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  if (length == 1) return byte(0);
  char32_t out = byte(0) & (0x7FU >> length);
  for (std::size_t i = 1; i < length; ++i) out = (out << 6U) | (byte(i) & 0x3FU);
  return out;
}

/// Whether a terminal may act on a character instead of showing it.
bool acts(char32_t c) {
  const bool control = c < 0x20 || (c >= 0x7F && c < 0xA0);
  const bool line = c == 0x2028 || c == 0x2029;
  const bool direction = c == 0x200E || c == 0x200F || (c >= 0x202A && c <= 0x202E) || (c >= 0x2066 && c <= 0x2069);
  return control || line || direction;
}

}  // namespace

std::size_t utf8_length(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const auto follows = [&](std::size_t i) { return i < text.size() && (byte(i) & 0xC0U) == 0x80U; };
  const unsigned first = byte(0);
  if (first < 0x80) return 1;
  if (first >= 0xC2 && first <= 0xDF) return follows(1) ? 2 : 0;
  if (first >= 0xE0 && first <= 0xEF) {
    if (!follows(1) || !follows(2)) return 0;
    const bool overlong = first == 0xE0 && byte(1) < 0xA0, surrogate = first == 0xED && byte(1) > 0x9F;
    return overlong || surrogate ? 0 : 3;
  }
  if (first >= 0xF0 && first <= 0xF4) {
    if (!follows(1) || !follows(2) || !follows(3)) return 0;
    const bool overlong = first == 0xF0 && byte(1) < 0x90, beyond = first == 0xF4 && byte(1) > 0x8F;
    return overlong || beyond ? 0 : 4;
  }
  return 0;
}

namespace {

std::string escaped(std::string_view text, std::size_t most, bool lines) {
  std::string out;
  std::size_t i = 0;
  while (i < text.size() && i < most) {
    const auto length = utf8_length(text.substr(i));
    const auto c = length == 0 ? static_cast<unsigned char>(text[i]) : code_point(text.substr(i), length);
    if (length > 0 && (!acts(c) || (lines && (c == '\n' || c == '\t'))))
      out += text.substr(i, length);
    else if (c == '\n' || c == '\t')
      out += c == '\n' ? "\\n" : "\\t";
    else
      out += c < 0x100 ? fmt::format("\\x{:02x}", static_cast<unsigned>(c))
                       : fmt::format("\\u{:04x}", static_cast<unsigned>(c));
    i += length == 0 ? 1 : length;
  }
  return i < text.size() ? out + "..." : out;
}

}  // namespace

std::string printable(std::string_view text, std::size_t most) {
  return escaped(text, most, false);
}

std::string printable_lines(std::string_view text) {
  return escaped(text, std::string_view::npos, true);
}

}  // namespace automodel
