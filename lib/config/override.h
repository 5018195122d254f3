// Command-line overrides: --a.b.c value, --a.b.c=value, a.b.c=value. They are applied to the tree before it is read.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "config/node.h"

namespace automodel::config {

struct Override {
  std::string key;    ///< dotted
  std::string value;  ///< YAML text
  std::string shown;  ///< as the user typed it, for locations
  bool bare = false;  ///< without a value: `value` is "true", which only a boolean key takes
};

/// Parses the words left over after a command's own options. `--flag` alone means true, for a boolean key. Reports
/// `bad-override` for a word that is neither an option nor `key=value`, and for an empty key.
std::vector<Override> parse_overrides(std::span<const std::string> words, Diagnostics& problems);

/// Applies the overrides to `root` in order, so later ones win. Missing maps along a path are created; list items are
/// addressed by index. Values are parsed as YAML (so `[1, 2]` and `{a: 1}` work). Reports overrides that cannot be
/// placed.
void apply_overrides(Node& root, std::span<const Override> overrides, Diagnostics& problems);

}  // namespace automodel::config
