// GPT-2's way to write bytes as characters: printable ones as themselves, the others as U+0100 and following.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace automodel::tokenizer {

/// The character of each byte.
const std::array<char16_t, 256>& byte_characters();
/// The byte that a character stands for; -1 where it stands for none.
int byte_of(char32_t character);
/// The bytes that a token stands for; nothing where one of its characters is not of the alphabet.
std::optional<std::string> bytes_of(std::string_view token);
/// The characters of bytes, as UTF-8.
std::string characters_of(std::string_view bytes);

}  // namespace automodel::tokenizer
