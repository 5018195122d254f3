// UTF-8 and the classes of characters that tokenizers look at.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace automodel::tokenizer {

/// U+FFFD, which stands for what is not UTF-8.
inline constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

struct CodePoint {
  char32_t value = 0;
  std::size_t bytes = 1;  ///< in the text; of invalid text, those that one U+FFFD stands for
  bool valid = true;
};

/// The code point at `at` < text.size(). Of invalid text the longest part that could begin a code point counts as one
/// (the Unicode standard's "maximal subpart", section 3.9).
CodePoint code_point_at(std::string_view text, std::size_t at);
/// Where the last code point of a valid, non-empty text begins.
std::size_t last_code_point(std::string_view text);
/// The length of the valid text at the beginning.
std::size_t valid_prefix(std::string_view text);
void append_utf8(char32_t point, std::string& out);
/// Appends `text`, with U+FFFD for each maximal invalid part.
void append_lossy(std::string_view text, std::string& out);

/// Unicode's White_Space.
bool is_space(char32_t point);

/// Normal forms C and D (Unicode Standard Annex 15) of valid text, appended to `out`.
void append_nfc(std::string_view text, std::string& out);
void append_nfd(std::string_view text, std::string& out);

}  // namespace automodel::tokenizer
