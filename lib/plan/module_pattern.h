// How a recipe's peft section names modules.
#pragma once

#include <optional>
#include <string>

#include "base/expression.h"

namespace automodel::plan {

/// Which modules a word of the recipe means: a fully qualified name, the last parts of names, or a pattern as NeMo
/// AutoModel reads it, in which * stands for anything and the rest is a regular expression.
class ModulePattern {
 public:
  /// None where it cannot be read.
  static std::optional<ModulePattern> read(const std::string& pattern);
  bool matches(const std::string& module) const;

 private:
  ModulePattern(std::string pattern, Expression expression);
  std::string pattern_;
  Expression expression_;
};

}  // namespace automodel::plan
