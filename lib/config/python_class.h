// A Python class that a recipe names by its path ("torch.distributed.fsdp.CPUOffloadPolicy"). The last component
// decides; the package in front of it is free, because projects re-export these classes.
#pragma once

#include <algorithm>
#include <optional>
#include <string>

#include <fmt/format.h>

#include "base/spelling.h"
#include "config/reader.h"
#include "config/types.h"

namespace automodel::config {

/// One of the classes in EnumNames<E>, or none where the recipe names none. Another class is `bad-value`.
template <class E>
struct PythonClass {
  std::optional<E> value = std::nullopt;
  std::string path = {};  ///< as written
  bool operator==(const PythonClass&) const = default;
  bool is(E wanted) const { return value == wanted; }

  static TypeInfo config_type() {
    return {[]() -> std::string { return "name of a Python class"; }, read,
            [](const void* held) -> Value {
              const auto& typed = *static_cast<const PythonClass*>(held);
              return typed.value ? Value(typed.path) : Value();
            },
            [] { return detail::simple_schema("string"); }};
  }

 private:
  static void read(Reader& reader, const Node& node, const std::string& path, void* out) {
    auto& typed = *static_cast<PythonClass*>(out);
    typed = {};
    if (node.is_null()) return;
    if (node.kind != Node::Kind::kScalar) return reader.mismatch(node, path, "name of a Python class");
    const auto name = node.text.substr(node.text.rfind('.') + 1);
    const auto& names = EnumNames<E>::names;
    const auto row = std::find_if(names.begin(), names.end(), [&](const auto& each) { return each.name == name; });
    if (row == names.end())
      return reader.report("bad-value", node.where, path, fmt::format("'{}' is not a valid {}", node.text, path),
                           suggestion(name, detail::enum_names<E>()));
    typed.value = row->value;
    typed.path = node.text;
  }
};

}  // namespace automodel::config
