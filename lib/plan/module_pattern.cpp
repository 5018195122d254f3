#include "plan/module_pattern.h"

#include <string_view>
#include <utility>

namespace automodel::plan {
namespace {

/// Converts NeMo AutoModel's wildcards to a regular expression: "*" and ".*" both match anything, including dots.
std::string expression_of(std::string_view pattern) {
  std::string out;
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    const bool joined = pattern[i] == '.' && i + 1 < pattern.size() && pattern[i + 1] == '*';
    if (joined) ++i;
    out += joined || pattern[i] == '*' ? "(.*)" : std::string(1, pattern[i]);
  }
  return out;
}

}  // namespace

ModulePattern::ModulePattern(std::string pattern, Expression expression)
    : pattern_(std::move(pattern)), expression_(std::move(expression)) {}

std::optional<ModulePattern> ModulePattern::read(const std::string& pattern) {
  auto expression = Expression::read(expression_of(pattern));
  if (!expression) return std::nullopt;
  return ModulePattern(pattern, std::move(*expression));
}

bool ModulePattern::matches(const std::string& module) const {
  return module == pattern_ || module.ends_with("." + pattern_) || expression_.matches(module);
}

}  // namespace automodel::plan
