// Lower case of single characters, equivalent to Rust's char::to_lowercase.
#pragma once

#include <string>
#include <string_view>

namespace automodel::tokenizer {

/// Appends the lower case of `text`, which must be valid UTF-8.
void append_lower_case(std::string_view text, std::string& out);

}  // namespace automodel::tokenizer
