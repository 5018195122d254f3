// Lower case of single characters, as Rust's char::to_lowercase has it.
#pragma once

#include <string>
#include <string_view>

namespace automodel::tokenizer {

/// Appends valid `text` in lower case.
void append_lower_case(std::string_view text, std::string& out);

}  // namespace automodel::tokenizer
