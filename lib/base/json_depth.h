// How deep a JSON text nests, known before it is parsed.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string_view>

namespace automodel {

/// The deepest document of a stranger that is parsed. nlohmann-json parses and frees any depth with little stack, but
/// copies, compares and prints a value by one call per level: some ten thousand levels end a program.
inline constexpr std::int64_t kDeepestJson = 100;

/// The largest number of arrays and objects that are open at once; 0 of a number or string. At least what a parser
/// meets until it finds an error; comments are not JSON and would be counted.
inline std::int64_t nesting_of(std::string_view json) {
  std::int64_t depth = 0, deepest = 0;
  bool quoted = false;
  for (std::size_t i = 0; i < json.size(); ++i) {
    const char c = json[i];
    if (quoted && c == '\\') ++i;  // what follows, a quote included, is of the string
    if (c == '"') quoted = !quoted;
    if (quoted) continue;
    if (c == '[' || c == '{') deepest = std::max(deepest, ++depth);
    if (c == ']' || c == '}') depth = std::max<std::int64_t>(0, depth - 1);
  }
  return deepest;
}

}  // namespace automodel
