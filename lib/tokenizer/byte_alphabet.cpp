#include "tokenizer/byte_alphabet.h"

#include "tokenizer/unicode.h"

namespace automodel::tokenizer {
namespace {

constexpr bool stands_for_itself(int byte) {
  return (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

constexpr std::array<char16_t, 256> kCharacters = [] {
  std::array<char16_t, 256> out{};
  char16_t next = 0x100;
  for (int byte = 0; byte < 256; ++byte)
    out[static_cast<std::size_t>(byte)] = stands_for_itself(byte) ? static_cast<char16_t>(byte) : next++;
  return out;
}();

constexpr std::size_t kCharactersEnd = 0x100 + 68;

constexpr std::array<std::int16_t, kCharactersEnd> kBytes = [] {
  std::array<std::int16_t, kCharactersEnd> out{};
  out.fill(-1);
  for (std::size_t byte = 0; byte < 256; ++byte) out[kCharacters[byte]] = static_cast<std::int16_t>(byte);
  return out;
}();

}  // namespace

const std::array<char16_t, 256>& byte_characters() {
  return kCharacters;
}

int byte_of(char32_t character) {
  return character < kCharactersEnd ? kBytes[character] : -1;
}

std::optional<std::string> bytes_of(std::string_view token) {
  std::string out;
  for (std::size_t at = 0; at < token.size();) {
    const CodePoint point = code_point_at(token, at);
    const int byte = byte_of(point.value);
    if (byte < 0) return std::nullopt;
    out += static_cast<char>(byte);
    at += point.bytes;
  }
  return out;
}

std::string characters_of(std::string_view bytes) {
  std::string out;
  for (const char c : bytes) append_utf8(kCharacters[static_cast<unsigned char>(c)], out);
  return out;
}

}  // namespace automodel::tokenizer
