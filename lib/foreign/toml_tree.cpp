#include "foreign/toml_tree.h"

#include <sstream>

#define TOML_EXCEPTIONS 0
#include <toml++/toml.h>

#include "foreign/source_file.h"

namespace automodel::foreign {
namespace {

config::Node to_tree(const toml::node& node, const std::string& file) {
  const auto& begin = node.source().begin;
  const SourceLocation where{file, static_cast<int>(begin.line), static_cast<int>(begin.column)};
  if (const auto* table = node.as_table()) {
    config::Node map{.kind = config::Node::Kind::kMap, .entries = {}, .where = where};
    for (const auto& [key, value] : *table)
      map.entries.push_back({std::string(key.str()), where, to_tree(value, file)});
    return map;
  }
  if (const auto* array = node.as_array()) {
    config::Node list{.kind = config::Node::Kind::kList, .entries = {}, .where = where};
    for (const auto& item : *array) list.items.push_back(to_tree(item, file));
    return list;
  }
  if (const auto* text = node.as_string()) return scalar_node(text->get(), where, true);
  std::ostringstream out;
  node.visit([&](const auto& value) {
    if constexpr (toml::is_value<decltype(value)>) out << value;
  });
  return scalar_node(out.str(), where);
}

}  // namespace

config::Node parse_toml(std::string_view text, const std::string& file, Diagnostics& problems) {
  const auto result = toml::parse(text, file);
  if (result) return to_tree(result.table(), file);
  const auto& begin = result.error().source().begin;
  problems.add("yaml-syntax")
      .says("the file is not valid TOML: {}", result.error().description())
      .hint("torchtitan's configurations are TOML up to 0.2.2")
      .at({file, static_cast<int>(begin.line), static_cast<int>(begin.column)});
  return {.kind = config::Node::Kind::kMap, .entries = {}};
}

}  // namespace automodel::foreign
