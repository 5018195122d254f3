// Environment variable references in a recipe: ${VAR}, ${VAR,default}, ${oc.env:VAR,default}, $VAR (as in NeMo
// AutoModel).
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "config/node.h"

namespace automodel::config {

using Environment = std::function<std::optional<std::string>(const std::string& name)>;

/// The process's own environment.
Environment process_environment();

/// Replaces every reference in `text`, in one pass: a variable's value is never searched for references, so that a `$`
/// in it stays. A default may name others as `$VAR`. Names may contain dots. White space around names and defaults is
/// dropped. Reports `environment` for an unset variable without a default and for
/// nested references, which would end at the first closing brace.
std::string interpolate(std::string_view text, const Environment& environment, const SourceLocation& where,
                        Diagnostics& problems);

/// Applies the above to every scalar of the tree; `written` keeps the original text. Keys of the tree's top for which
/// `skips` is true are left as they are.
void interpolate(Node& node, const Environment& environment, Diagnostics& problems,
                 bool (*skips)(std::string_view key) = nullptr);

}  // namespace automodel::config
