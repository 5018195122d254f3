#include "base/shell_word.h"

#include <algorithm>
#include <cctype>

namespace automodel {

std::string shell_quoted(std::string_view word) {
  const bool safe = !word.empty() && std::all_of(word.begin(), word.end(), [](unsigned char c) {
    return std::isalnum(c) != 0 || std::string_view("-_./=:,@+%").find(static_cast<char>(c)) != std::string_view::npos;
  });
  if (safe) return std::string(word);
  std::string out = "'";
  for (const char c : word) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

}  // namespace automodel
