// Recipe keys as declared, independent of any recipe: the page docs/recipe-reference.md and names for shell completion.
#pragma once

#include <string>
#include <vector>

namespace automodel::config {

/// Markdown with a heading per section and a table row per key (type, default, meaning).
std::string recipe_reference();

/// A key that is accepted but has no effect.
struct IgnoredRow {
  std::string key = {};
  std::string reason = {};
  /// If only some components have the key, those components, such as "distributed.strategy: ddp".
  std::vector<std::string> components = {};
  std::string when = {};     ///< "is torch_save" if only that value has no effect; empty if none has
  std::string initial = {};  ///< the default, as JSON; empty if `when` is set
};
/// All of them, in the order of recipe_reference(), which ends with this table. Built from the same declarations as the
/// list printed for a recipe: fields declared Ignored{...}, and ignored_values().
std::vector<IgnoredRow> ignored_keys();

/// Every dotted recipe key, for completion. "NAME" stands for a user-chosen part; list items are omitted.
std::vector<std::string> recipe_keys();

/// A key with a fixed set of values, by their canonical names.
struct KeyValues {
  std::string key = {};
  std::vector<std::string> values = {};
};
/// Those of recipe_keys() that are booleans, enumerations or components, for completion.
std::vector<KeyValues> recipe_values();

}  // namespace automodel::config
