// TOML text as the tree that YAML files give.
#pragma once

#include <string>
#include <string_view>

#include "config/node.h"

namespace automodel::foreign {

/// Reports yaml-syntax with the place; the tree is then an empty mapping. Nesting is limited by toml++ (256).
config::Node parse_toml(std::string_view text, const std::string& file, Diagnostics& problems);

}  // namespace automodel::foreign
