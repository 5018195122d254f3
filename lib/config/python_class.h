// A Python class that a recipe names by its dotted path ("torch.distributed.fsdp.CPUOffloadPolicy"). Only the last
// component is compared, since projects re-export these classes from other packages.
#pragma once

#include <algorithm>
#include <optional>
#include <string>

#include <fmt/format.h>

#include "base/spelling.h"
#include "config/reader.h"
#include "config/types.h"

namespace automodel::config {

/// One of the classes in EnumNames<E>, or empty if the recipe names none. Any other class is reported as `bad-value`.
template <class E>
struct PythonClass {
  std::optional<E> value = std::nullopt;
  std::string path = {};  ///< as written
  bool operator==(const PythonClass&) const = default;
  bool is(E wanted) const { return value == wanted; }

  static TypeInfo config_type() {
    return {[]() -> std::string { return "name of a Python class"; }, read,
            [](const void* held, Keys) -> Value {
              const auto& typed = *static_cast<const PythonClass*>(held);
              return typed.value ? Value(typed.path) : Value();
            },
            [] {
              Value out;
              out.set("type", Value::List{"string", "null"});
              return out;
            }};
  }

  /// The class named by the last component of `path`.
  static std::optional<E> named(const std::string& path) {
    for (const auto& row : EnumNames<E>::names)
      if (row.name == last_component(path)) return row.value;
    return std::nullopt;
  }

 private:
  static std::string last_component(const std::string& path) { return path.substr(path.rfind('.') + 1); }
  static void read(Reader& reader, const Node& node, const std::string& path, void* out) {
    auto& typed = *static_cast<PythonClass*>(out);
    typed = {};
    if (node.is_null()) return;
    if (node.kind != Node::Kind::kScalar)
      return reader.mismatch(node, path, "the name of a Python class", "write a text");
    const auto known = named(node.text);
    if (!known)
      return void(reader.refuse("bad-value", path, node.where)
                      .says("'{}' is not a valid {}", node.text, path)
                      .hint(suggestion(last_component(node.text), detail::enum_names<E>())));
    typed.value = known;
    typed.path = node.text;
  }
};

}  // namespace automodel::config
