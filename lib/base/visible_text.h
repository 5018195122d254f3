// Text of others for a terminal.
#pragma once

#include <string>
#include <string_view>

namespace automodel {

/// `text` with every control character but line ends and tabs replaced by U+FFFD: a terminal obeys them, and `grep`
/// takes a log with a NUL for a binary file. Bytes that are not UTF-8 stay.
std::string visible_text(std::string_view text);

}  // namespace automodel
