// Module selection in a recipe's peft section.
#pragma once

#include <optional>
#include <string>

#include "base/expression.h"

namespace automodel::plan {

/// Matches modules by a fully qualified name, by the last components of a name, or by a pattern in NeMo AutoModel's
/// sense: a regular expression in which * stands for anything.
class ModulePattern {
 public:
  /// Empty if the pattern is invalid.
  static std::optional<ModulePattern> read(const std::string& pattern);
  bool matches(const std::string& module) const;

 private:
  ModulePattern(std::string pattern, Expression expression);
  std::string pattern_;
  Expression expression_;
};

}  // namespace automodel::plan
