// A recipe whose values a program changes, and the values that have no effect whoever sets them.
#pragma once

#include <functional>
#include <span>
#include <string_view>

#include "config/recipe.h"

namespace automodel::config {

/// The recipe with `edit` done to its values; every other key stays as it was read. What the edit changes is added to
/// the overrides, so that read_again() comes to the same recipe, and counts as given; rules across sections hold again.
/// `recipe` has no problems.
LoadedRecipe changed(const LoadedRecipe& recipe, const std::function<void(Recipe&)>& edit);

/// A key that acts, but not with every value.
struct IgnoredValue {
  std::string_view key;
  std::string_view when;  ///< "is torch_save"
  std::string_view reason;
  bool (*holds)(const Recipe& recipe);
};
/// Values whose key is listed as ignored, beside the fields that are declared so.
std::span<const IgnoredValue> ignored_values();

}  // namespace automodel::config
