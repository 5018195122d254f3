// UTF-8 and the character classes that tokenizers need.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace automodel::tokenizer {

/// U+FFFD, the replacement for invalid UTF-8.
inline constexpr std::string_view kReplacement = "\xEF\xBF\xBD";
/// U+2581, which stands for a space in SentencePiece's tokens.
inline constexpr std::string_view kSpaceMark = "\xE2\x96\x81";

struct CodePoint {
  char32_t value = 0;
  std::size_t bytes = 1;  ///< length in the text; for invalid text, of the part that one U+FFFD replaces
  bool valid = true;
};

/// The code point at `at` < text.size(). In invalid text, the longest prefix of a possible code point counts as one
/// (the Unicode standard's "maximal subpart", section 3.9).
CodePoint code_point_at(std::string_view text, std::size_t at);
/// Start of the last code point of a valid, non-empty text.
std::size_t last_code_point(std::string_view text);
/// Length of the longest valid prefix.
std::size_t valid_prefix(std::string_view text);
void append_utf8(char32_t point, std::string& out);
/// Appends `text`, replacing each maximal invalid part with U+FFFD.
void append_lossy(std::string_view text, std::string& out);

/// Unicode's White_Space property.
bool is_space(char32_t point);
/// White space as Python's str.isspace() and `\s` see it: Unicode's and the four separators U+001C ... U+001F.
inline bool is_python_space(char32_t point) {
  return is_space(point) || (point >= 0x1C && point <= 0x1F);
}

/// Bytes of white space at the begin and at the end of a valid text.
std::size_t leading_space(std::string_view text);
std::size_t trailing_space(std::string_view text);

/// Appends normal form C or D (Unicode Standard Annex 15) of `text`, which must be valid.
void append_nfc(std::string_view text, std::string& out);
void append_nfd(std::string_view text, std::string& out);

}  // namespace automodel::tokenizer
