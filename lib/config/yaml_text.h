// What every reader of YAML, of 1.1 and of 1.2, takes for the same text.
#pragma once

#include <string>
#include <string_view>

namespace automodel::config {

/// Whether every reader takes each character of the text for itself, outside quotes: no control characters but tab and
/// line feed, no U+FEFF, nothing that YAML 1.1 takes for the end of a line (U+0085, U+2028, U+2029).
bool is_yaml_literal(std::string_view text);
/// The text in double quotes, in ASCII: other characters are written as \u and four digits, bytes that are not UTF-8 as
/// U+FFFD.
std::string yaml_quoted(std::string_view text);

}  // namespace automodel::config
