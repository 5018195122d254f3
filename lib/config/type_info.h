// How a C++ type appears in a recipe: read from a tree, dumped to a value, named in messages, described in JSON Schema.
// One small function table per type keeps the reader, dumping, schema and documentation free of templates.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "config/value.h"

namespace automodel::config {

class Reader;
struct Node;
struct FieldInfo;
struct TypeInfo;

/// Which keys of a section to dump.
enum class Keys {
  kAll,
  kActing,  ///< without keys that have no effect or that prevent training
};

/// One choice of a section that a key selects (`_target_`, `strategy`).
struct Alternative {
  std::string_view name;                ///< the canonical name, used when dumping
  std::vector<std::string_view> names;  ///< every accepted spelling, the canonical one first
  std::string_view doc;
  const TypeInfo* type;
  void* (*emplace)(void* variant);  ///< makes the variant hold this alternative; returns it
  std::string_view plan_only = {};  ///< why it can be planned but not trained; empty if it can be trained
};

/// A variant type where the value of `key` selects one of several sections.
struct Choice {
  std::string_view key;
  std::vector<Alternative> alternatives;
  std::size_t implied;  ///< used if the key is absent; alternatives.size() if the key is required
  std::size_t (*index)(const void* variant);
  const void* (*get)(const void* variant);  ///< the active alternative
};

struct TypeInfo {
  std::string (*name)();
  void (*read)(Reader& reader, const Node& node, const std::string& path, void* out);
  Value (*dump)(const void* value, Keys keys);
  Value (*schema)();
  const std::vector<FieldInfo>& (*fields)() = nullptr;  ///< sections only
  const Choice& (*choice)() = nullptr;                  ///< variants of sections only
  const TypeInfo& (*inner)() = nullptr;                 ///< element type of an optional, list or mapping
};

/// One row of a section's table.
struct FieldInfo {
  std::string_view key;
  std::vector<std::string_view> aliases;  ///< alternative spellings of the key
  std::string_view doc;
  std::string_view ignored;           ///< why the key has no effect; empty if it has one
  std::string_view unsupported = {};  ///< why a recipe with this key can be planned but not trained
  std::size_t offset;                 ///< of the value within the section, in bytes
  const TypeInfo* type;
  Value initial = {};                                   ///< the default, dumped
  std::function<std::string(const void* value)> check;  ///< why a value is rejected, or ""
  enum class Form { kKey, kFlat, kPrefix, kRest } form = Form::kKey;
  std::span<const std::string_view> collected = {};  ///< kRest: the keys that it collects; empty: every other key

  void* of(void* section) const { return static_cast<char*>(section) + offset; }
  const void* of(const void* section) const { return static_cast<const char*>(section) + offset; }
};

}  // namespace automodel::config
