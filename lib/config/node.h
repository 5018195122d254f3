// YAML text as a tree with the location of every node. Overrides and environment values are applied to the tree before
// any section is read, so there is a single path from text to configuration.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/diagnostic.h"
#include "config/value.h"

namespace automodel::config {

struct Node {
  enum class Kind { kScalar, kList, kMap };
  struct Entry;

  Kind kind = Kind::kScalar;
  std::string text = {};     ///< of a scalar, after environment substitution
  std::string written = {};  ///< of a scalar, as in the file; this form is printed and saved, which keeps secrets out
  bool quoted = false;       ///< the scalar was quoted or a block scalar
  bool bare = false;         ///< the "true" of an override without a value
  std::vector<Node> items = {};
  std::vector<Entry> entries;  // no initialiser: clang would require the complete type
  SourceLocation where = {};

  const Entry* find(std::string_view key) const;
  Entry* find(std::string_view key);
  bool is_null() const;
};

struct Node::Entry {
  std::string key;
  SourceLocation where;  ///< of the key
  Node value;
  bool merged = false;  ///< came from a YAML merge key; the map's own entries take precedence
};

/// Parses one YAML document. `file` names it in locations. Reports syntax errors, duplicate keys, multiple documents,
/// undefined aliases, and texts that are too large or expand too much; the tree then holds what could be read.
Node parse_yaml(std::string_view text, const std::string& file, Diagnostics& problems);

/// Converts a tree to an untyped value.
Value to_value(const Node& node);

}  // namespace automodel::config
