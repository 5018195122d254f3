#include "config/scalar.h"

#include <array>
#include <cctype>
#include <charconv>
#include <limits>
#include <string>

namespace automodel::config {
std::string_view trimmed(std::string_view text) {
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.front())) != 0) text.remove_prefix(1);
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.back())) != 0) text.remove_suffix(1);
  return text;
}

namespace {

/// Removes underscores between digits; empty if there is one anywhere else.
std::optional<std::string> without_underscores(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto digit = [&](std::size_t k) {
      return k < text.size() && std::isxdigit(static_cast<unsigned char>(text[k])) != 0;
    };
    if (text[i] != '_')
      out += text[i];
    else if (i == 0 || !digit(i - 1) || !digit(i + 1))
      return std::nullopt;
  }
  return out;
}

}  // namespace

bool is_null_word(std::string_view text, bool quoted) {
  const auto word = trimmed(text);
  if (word == "none" || word == "None") return true;
  return !quoted && (word.empty() || word == "~" || word == "null" || word == "Null" || word == "NULL");
}

std::optional<bool> parse_boolean(std::string_view text, bool quoted) {
  const auto word = trimmed(text);
  if (word == "true" || word == "True") return true;
  if (word == "false" || word == "False") return false;
  if (quoted) return std::nullopt;
  for (const auto yes : {"TRUE", "yes", "Yes", "YES", "on", "On", "ON"})
    if (word == yes) return true;
  for (const auto no : {"FALSE", "no", "No", "NO", "off", "Off", "OFF"})
    if (word == no) return false;
  return std::nullopt;
}

std::optional<std::int64_t> parse_integer(std::string_view text) {
  const auto clean = without_underscores(trimmed(text));
  if (!clean) return std::nullopt;
  std::string_view digits = *clean;
  bool negative = false;
  if (!digits.empty() && (digits.front() == '-' || digits.front() == '+')) {
    negative = digits.front() == '-';
    digits.remove_prefix(1);
  }
  const bool hex = digits.starts_with("0x") || digits.starts_with("0X");
  if (hex) digits.remove_prefix(2);
  if (digits.empty() || std::isxdigit(static_cast<unsigned char>(digits.front())) == 0) return std::nullopt;
  if (!hex && digits.size() > 1 && digits.front() == '0') return std::nullopt;
  std::uint64_t magnitude = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), magnitude, hex ? 16 : 10);
  if (error != std::errc{} || end != digits.data() + digits.size()) return std::nullopt;
  if (magnitude > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) return std::nullopt;
  const auto value = static_cast<std::int64_t>(magnitude);
  return negative ? -value : value;
}

std::optional<double> parse_number(std::string_view text) {
  if (const auto integer = parse_integer(text)) return static_cast<double>(*integer);
  const auto word = trimmed(text);
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  if (word == ".inf" || word == "+.inf" || word == ".Inf" || word == ".INF") return kInfinity;
  if (word == "-.inf" || word == "-.Inf" || word == "-.INF") return -kInfinity;
  if (word == ".nan" || word == ".NaN" || word == ".NAN") return std::numeric_limits<double>::quiet_NaN();
  const auto clean = without_underscores(word);
  if (!clean) return std::nullopt;
  std::string_view digits = *clean;
  if (digits.starts_with('+')) digits.remove_prefix(1);
  const auto first = digits.find_first_not_of('-');
  if (first == std::string_view::npos || first > 1 ||
      (std::isdigit(static_cast<unsigned char>(digits[first])) == 0 && digits[first] != '.'))
    return std::nullopt;  // from_chars would accept "inf" and "nan", which YAML treats as strings
  double value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (error != std::errc{} || end != digits.data() + digits.size()) return std::nullopt;
  return value;
}

Value scalar_value(std::string_view text, bool quoted) {
  if (is_null_word(text, quoted)) return nullptr;
  if (const auto boolean = parse_boolean(text, quoted)) return *boolean;
  if (const auto integer = parse_integer(text)) return *integer;
  const auto word = trimmed(text);
  const bool leading_zero =
      word.size() > 1 && word[0] == '0' && word.find_first_not_of("0123456789_") == std::string_view::npos;
  if (!leading_zero)
    if (const auto number = parse_number(text)) return *number;
  return text;
}

}  // namespace automodel::config
