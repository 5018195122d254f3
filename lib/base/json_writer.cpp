#include "base/json_writer.h"

#include <array>
#include <charconv>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "base/utf8.h"

namespace automodel {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

void append_integer(std::string& out, std::int64_t number) {
  std::array<char, 24> digits;
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), number).ptr;
  out.append(digits.data(), end);
}

}  // namespace

void JsonWriter::separate() {
  if (!first_) out_ += ',';
  first_ = false;
}

void JsonWriter::open(char bracket) {
  separate();
  out_ += bracket;
  first_ = true;
}

void JsonWriter::close(char bracket) {
  out_ += bracket;
  first_ = false;
}

void JsonWriter::literal(std::string_view text) {
  separate();
  out_ += text;
}

void JsonWriter::key(std::string_view name) {
  separate();
  quote(name);
  out_ += ':';
  first_ = true;  // the value follows without a comma
}

void JsonWriter::value(std::int64_t number) {
  separate();
  append_integer(out_, number);
}

void JsonWriter::value(double number) {
  if (!std::isfinite(number)) return value(nullptr);
  separate();
  const std::string text = fmt::format("{}", number);
  out_ += text;
  if (text.find_first_of(".e") == std::string::npos) out_ += ".0";
}

void JsonWriter::value(std::string_view text) {
  separate();
  quote(text);
}

void JsonWriter::value(std::span<const std::int32_t> numbers) {
  separate();
  out_ += '[';
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    if (i > 0) out_ += ',';
    append_integer(out_, numbers[i]);
  }
  out_ += ']';
}

void JsonWriter::quote(std::string_view text) {
  out_ += '"';
  for (std::size_t i = 0; i < text.size();) {
    const auto length = utf8_length(text.substr(i));
    const char c = text[i];
    if (length == 0)
      out_ += kReplacement;
    else if (c == '"' || c == '\\')
      (out_ += '\\') += c;
    else if (static_cast<unsigned char>(c) < 0x20)
      out_ += c == '\n'   ? std::string("\\n")
              : c == '\t' ? std::string("\\t")
                          : fmt::format("\\u{:04x}", static_cast<unsigned>(c));
    else if (c == 0x7F || (c == '\xC2' && static_cast<unsigned char>(text[i + 1]) < 0xA0))  // DEL and C1
      out_ += fmt::format("\\u{:04x}", static_cast<unsigned char>(text[i + length - 1]));
    else
      out_ += text.substr(i, length);
    i += length == 0 ? 1 : length;
  }
  out_ += '"';
}

std::string JsonWriter::take() {
  first_ = true;
  return std::exchange(out_, {});
}

}  // namespace automodel
