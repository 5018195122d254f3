// Words of command lines that are printed to be copied into a shell.
#pragma once

#include <string>
#include <string_view>

namespace automodel {

/// `word` quoted for a POSIX shell: unchanged if that is safe, else in single quotes.
std::string shell_quoted(std::string_view word);

}  // namespace automodel
