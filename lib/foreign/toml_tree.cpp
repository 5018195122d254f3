#include "foreign/toml_tree.h"

#include <algorithm>
#include <sstream>

#define TOML_EXCEPTIONS 0
#include <toml++/toml.h>

#include "config/limits.h"
#include "foreign/source_file.h"

namespace automodel::foreign {
namespace {

/// Keys with dots open a table for each part, which the parser does not count as nesting, and arrays inside tables
/// carry the depth from line to line: so the dots of the whole file count, those of texts and numbers included.
constexpr std::ptrdiff_t kMaxDots = 2000;

/// At most config::kMaxNodes values, counted by `values`; what is beyond is left out.
config::Node to_tree(const toml::node& node, const std::string& file, std::size_t& values) {
  const auto& begin = node.source().begin;
  const SourceLocation where{file, static_cast<int>(begin.line), static_cast<int>(begin.column)};
  if (const auto* table = node.as_table()) {
    config::Node map{.kind = config::Node::Kind::kMap, .entries = {}, .where = where};
    for (const auto& [key, value] : *table) {
      if (++values > config::kMaxNodes) break;
      map.entries.push_back({std::string(key.str()), where, to_tree(value, file, values)});
    }
    return map;
  }
  if (const auto* array = node.as_array()) {
    config::Node list{.kind = config::Node::Kind::kList, .entries = {}, .where = where};
    for (const auto& item : *array) {
      if (++values > config::kMaxNodes) break;
      list.items.push_back(to_tree(item, file, values));
    }
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
  const config::Node nothing{.kind = config::Node::Kind::kMap, .entries = {}};
  if (std::ranges::count(text, '.') > kMaxDots) {
    problems.add("yaml-syntax")
        .says("the TOML file has more than {} dots", kMaxDots)
        .hint("no trainer's configuration has so many")
        .at({file, 1, 1});
    return nothing;
  }
  const auto result = toml::parse(text, file);
  if (result) {
    std::size_t values = 0;
    auto tree = to_tree(result.table(), file, values);
    if (values <= config::kMaxNodes) return tree;
    problems.add("yaml-syntax")
        .says("the TOML file has more than {} values", config::kMaxNodes)
        .hint("'--from FORMAT FILE' takes the trainer's configuration file")
        .at({file, 1, 1});
    return nothing;
  }
  const auto& begin = result.error().source().begin;
  problems.add("yaml-syntax")
      .says("the file is not valid TOML: {}", result.error().description())
      .hint("torchtitan's configurations are TOML up to 0.2.2")
      .at({file, static_cast<int>(begin.line), static_cast<int>(begin.column)});
  return nothing;
}

}  // namespace automodel::foreign
