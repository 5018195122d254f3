// UTF-8 of unknown origin: whole characters, and text that is safe to print.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace automodel {

/// Length in bytes of the UTF-8 character at the start of `text`, which is not empty; 0 if it is invalid.
std::size_t utf8_length(std::string_view text);

/// `text` for a terminal: control characters (C0, DEL, C1), line separators, marks that change the direction of
/// writing, and bytes that are not UTF-8 are escaped as \n, \x1b or \u202e, so that a value from a file can neither
/// move the cursor nor begin a line. Of a text longer than `most` bytes only the beginning is kept, followed by "...".
std::string printable(std::string_view text, std::size_t most = std::string_view::npos);
/// The same for a text of several lines: line breaks and tabs stay.
std::string printable_lines(std::string_view text);

}  // namespace automodel
