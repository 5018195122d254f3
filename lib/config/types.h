// The header that section headers include. The TypeInfo of Field types is generated in config/type_table.h.
#pragma once

#include <array>
#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "config/field.h"

namespace automodel::config {

/// The spellings of an enum in a recipe: `static constexpr std::array names = {EnumName<E>{"up", E::kUp}, ...}`, with a
/// value's canonical name before its aliases. Specialise once per enum. Case-insensitive.
template <class E>
struct EnumNames;
template <class E>
struct EnumName {
  std::string_view name;
  E value;
};

/// The key that selects an alternative of a variant; specialise if it is not `_target_`.
template <class Variant>
struct ChoiceKey {
  static constexpr std::string_view value = "_target_";
};

namespace detail {

/// Index of the scalar's spelling in `names` ("null" matches null), or -1 after reporting a problem.
int read_word(Reader&, const Node&, const std::string&, const std::vector<std::string_view>& names);
void read_section(Reader&, const Node&, const std::string&, void* section, const std::vector<FieldInfo>& fields);
void read_choice(Reader&, const Node&, const std::string&, void* variant, const Choice& choice);
/// False for null.
bool present(const Node&);
/// Calls `item(i, node, path)` for every item. A scalar that looks like a YAML list is parsed as one. `length` > 0
/// requires exactly that many items.
void read_list(Reader&, const Node&, const std::string&, std::string_view type_name, std::size_t length,
               const std::function<void(std::size_t, const Node&, const std::string&)>& item);
void read_map(Reader&, const Node&, const std::string&,
              const std::function<void(const std::string&, const Node&, const std::string&)>& entry);
Value dump_section(const void* section, const std::vector<FieldInfo>& fields, Keys keys);
Value dump_choice(const void* variant, const Choice& choice, Keys keys);
Value section_schema(const std::vector<FieldInfo>& fields);
Value choice_schema(const Choice& choice);
Value simple_schema(std::string_view type);
/// Schemas of scalars as the reader takes them: also as text, since YAML's readers differ in what is a number.
Value boolean_schema();
Value integer_schema();
Value number_schema();
Value text_schema();
/// Whether `true` is a value of the type that `schema` describes; a value of any type may be a boolean.
bool takes_boolean(const Value& schema);
/// null as YAML and Python write it.
Value null_schema();
Value enum_schema(const std::vector<std::string_view>& names);
std::string enum_type_name(const std::vector<std::string_view>& names);

template <class E>
std::vector<std::string_view> enum_names() {
  std::vector<std::string_view> names;
  names.reserve(std::size(EnumNames<E>::names));
  for (const auto& row : EnumNames<E>::names) names.push_back(row.name);
  return names;
}

enum class ScalarKind { kBoolean, kInt, kInt64, kDouble, kString, kDType, kValue };
TypeInfo scalar_type(ScalarKind kind);

}  // namespace detail

/// The section as a value, like NeMo AutoModel's `to_dict`.
template <class T>
Value to_dict(const T& section) {
  return type_of<T>().dump(&section, Keys::kAll);
}
/// The same without keys that have no effect or that prevent training.
template <class T>
Value acting(const T& section) {
  return type_of<T>().dump(&section, Keys::kActing);
}

}  // namespace automodel::config
