// What can be said of a recipe's keys without a recipe: the page docs/recipe-reference.md and the names for completion.
#pragma once

#include <string>
#include <vector>

namespace automodel::config {

/// Markdown: a heading for each section, a table row for each key with type, default and meaning.
std::string recipe_reference();

/// Every dotted key of a recipe, for completion; "NAME" stands for a part that the user chooses, items of lists are
/// left out.
std::vector<std::string> recipe_keys();

/// A key that takes one of a few values, under their native names.
struct KeyValues {
  std::string key = {};
  std::vector<std::string> values = {};
};
/// Switches, enumerations and components of recipe_keys(), for completion.
std::vector<KeyValues> recipe_values();

}  // namespace automodel::config
