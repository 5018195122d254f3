#include "config/override.h"

#include <algorithm>
#include <cctype>

#include <fmt/format.h>

#include "config/scalar.h"

namespace automodel::config {
namespace {

SourceLocation place(const Override& item) {
  return {fmt::format("command line ({})", item.shown), 0, 0};
}

std::vector<std::string> split_key(const std::string& key) {
  std::vector<std::string> parts;
  std::size_t begin = 0;
  for (std::size_t dot = key.find('.'); dot != std::string::npos; dot = key.find('.', begin)) {
    parts.push_back(key.substr(begin, dot - begin));
    begin = dot + 1;
  }
  parts.push_back(key.substr(begin));
  return parts;
}

void relocate(Node& node, const SourceLocation& where) {
  node.where = where;
  for (auto& item : node.items) relocate(item, where);
  for (auto& entry : node.entries) {
    entry.where = where;
    relocate(entry.value, where);
  }
}

/// The value as a tree. Text that is not valid YAML (`a: b: c`, `@x`) is taken as a string.
Node parse_value(const Override& item, const SourceLocation& where) {
  Node plain{.text = item.value, .written = item.value, .bare = item.bare, .entries = {}, .where = where};
  const auto first = item.value.find_first_not_of(' ');
  if (first == std::string::npos || std::string_view("[{'\"").find(item.value[first]) == std::string_view::npos)
    return plain;
  Diagnostics ignored;
  Node node = parse_yaml(item.value, where.file, ignored);
  if (!ignored.empty()) return plain;
  relocate(node, where);
  return node;
}

class Placement {
 public:
  Placement(const Override& item, Diagnostics& problems) : item_(item), where_(place(item)), problems_(problems) {}

  void run(Node& root) {
    const auto parts = split_key(item_.key);
    if (std::any_of(parts.begin(), parts.end(), [](const auto& part) { return part.empty(); }))
      return void(problems_.add("bad-override", item_.key)
                      .at(where_)
                      .says("'{}' is not a key: a part of it is empty", item_.key)
                      .hint("write '--section.key=value'"));
    Node* node = &root;
    for (std::size_t i = 0; i < parts.size(); ++i) {
      Node* child = descend(*node, parts[i]);
      if (child == nullptr) return;
      if (auto* entry = node->find(parts[i]); entry != nullptr && i + 1 == parts.size()) entry->where = where_;
      node = child;
    }
    *node = parse_value(item_, where_);
  }

 private:
  /// The child `part` of `node`, created if missing; null after reporting a problem.
  Node* descend(Node& node, const std::string& part) {
    if (node.kind == Node::Kind::kList) {
      const auto number = parse_integer(part);
      if (!number || *number < 0 || static_cast<std::size_t>(*number) >= node.items.size()) {
        problems_.add("bad-override", item_.key)
            .at(where_)
            .says("'{}' has no item '{}' in a list of {}", item_.key, part, node.items.size())
            .hint("items count from 0; or give the whole list: key=[a, b]");
        return nullptr;
      }
      return &node.items[static_cast<std::size_t>(*number)];
    }
    if (node.kind == Node::Kind::kScalar) {
      if (!node.is_null()) {
        problems_.add("bad-override", item_.key)
            .at(where_)
            .says("'{}' descends into '{}', which is a scalar", item_.key, node.written)
            .hint("override that key itself");
        return nullptr;
      }
      node = Node{.kind = Node::Kind::kMap, .entries = {}, .where = where_};
    }
    if (auto* entry = node.find(part)) return &entry->value;
    node.entries.push_back({part, where_, Node{.entries = {}, .where = where_}});
    return &node.entries.back().value;
  }

  const Override& item_;
  SourceLocation where_;
  Diagnostics& problems_;
};

}  // namespace

std::vector<Override> parse_overrides(std::span<const std::string> words, Diagnostics& problems) {
  std::vector<Override> out;
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::string& word = words[i];
    const bool dashed = word.starts_with("--");
    const std::string body = dashed ? word.substr(2) : word;
    const auto equals = body.find('=');
    const std::string key = body.substr(0, equals);
    if (key.empty() || key.starts_with("-") || (!dashed && equals == std::string::npos)) {
      problems.add("bad-override")
          .says("'{}' is neither an option nor an override", word)
          .hint("overrides are '--a.b.c value', '--a.b.c=value' or 'a.b.c=value'")
          .at({"command line", 0, 0});
      continue;
    }
    if (equals != std::string::npos) {
      out.push_back({key, body.substr(equals + 1), word});
    } else if (i + 1 < words.size() && !words[i + 1].starts_with("--")) {
      out.push_back({key, words[i + 1], word + " " + words[i + 1]});
      ++i;
    } else {
      out.push_back({key, "true", word, true});
    }
  }
  return out;
}

void apply_overrides(Node& root, std::span<const Override> overrides, Diagnostics& problems) {
  for (const auto& item : overrides) Placement(item, problems).run(root);
}

}  // namespace automodel::config
