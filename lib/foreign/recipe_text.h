// From what a configuration means to a recipe: the only place that knows both.
#pragma once

#include <string>

#include "foreign/findings.h"
#include "foreign/resolved.h"

namespace automodel::foreign {

/// The recipe as YAML text; a comment behind each line names the key that it comes from. `origin` names the files.
std::string recipe_text(const Resolved& resolved, const Findings& findings, const std::string& origin);

}  // namespace automodel::foreign
