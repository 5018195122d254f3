// Differences between two recipes, expressed as the overrides that turn one into the other.
#pragma once

#include <vector>

#include "config/override.h"
#include "config/recipe.h"

namespace automodel::config {

/// One override per key whose value differs, in declaration order. A section that only `after` has contributes the keys
/// that differ from their defaults.
std::vector<Override> differences(const Recipe& before, const Recipe& after);

}  // namespace automodel::config
