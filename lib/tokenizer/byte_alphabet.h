// GPT-2's mapping of bytes to characters: printable bytes map to themselves, the others to U+0100 onwards.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace automodel::tokenizer {

/// The character for each byte.
const std::array<char16_t, 256>& byte_characters();
/// The byte that a character represents; -1 if none.
int byte_of(char32_t character);
/// The bytes that a token represents; nothing if one of its characters is not in the alphabet.
std::optional<std::string> bytes_of(std::string_view token);
/// The characters for `bytes`, as UTF-8.
std::string characters_of(std::string_view bytes);

}  // namespace automodel::tokenizer
