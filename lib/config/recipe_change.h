// Programmatic changes to a recipe, and values that have no effect.
#pragma once

#include <functional>
#include <span>
#include <string_view>

#include "config/recipe.h"

namespace automodel::config {

/// The recipe after `edit`; all other keys stay as read. The changes are appended to the overrides and count as given,
/// so read_again() yields the same recipe. Rules across sections are checked again. `recipe` must have no problems.
LoadedRecipe changed(const LoadedRecipe& recipe, const std::function<void(Recipe&)>& edit);

/// A key that has no effect with certain values.
struct IgnoredValue {
  std::string_view key;
  std::string_view when;  ///< "is torch_save"
  std::string_view reason;
  bool (*holds)(const Recipe& recipe);
};
/// Key/value combinations to be listed as ignored, in addition to fields declared Ignored.
std::span<const IgnoredValue> ignored_values();

}  // namespace automodel::config
