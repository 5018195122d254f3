// What headers of sections include. The TypeInfo of every type that a Field may have is made in config/type_table.h.
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

/// The spellings of an enum in a recipe: `static constexpr std::array names = {EnumName<E>{"up", E::kUp}, ...}`, the
/// canonical one of a value before its aliases. Specialise once per enum. Letter case does not matter.
template <class E>
struct EnumNames;
template <class E>
struct EnumName {
  std::string_view name;
  E value;
};

/// The key that selects an alternative of a variant; specialise where it is not `_target_`.
template <class Variant>
struct ChoiceKey {
  static constexpr std::string_view value = "_target_";
};

namespace detail {

/// Index of the spelling in `names` ("null" names null), or -1 after a problem was reported.
int read_word(Reader&, const Node&, const std::string&, const std::vector<std::string_view>& names);
void read_section(Reader&, const Node&, const std::string&, void* section, const std::vector<FieldInfo>& fields);
void read_choice(Reader&, const Node&, const std::string&, void* variant, const Choice& choice);
/// False for null.
bool present(const Node&);
/// Calls `item(i, node)` for every item; a scalar counts as text of a YAML list where it looks like one. `length` > 0
/// asks for exactly that many.
void read_list(Reader&, const Node&, const std::string&, std::string_view type_name, std::size_t length,
               const std::function<void(std::size_t, const Node&, const std::string&)>& item);
void read_map(Reader&, const Node&, const std::string&,
              const std::function<void(const std::string&, const Node&, const std::string&)>& entry);
Value dump_section(const void* section, const std::vector<FieldInfo>& fields, Keys keys);
Value dump_choice(const void* variant, const Choice& choice, Keys keys);
Value section_schema(const std::vector<FieldInfo>& fields);
Value choice_schema(const Choice& choice);
Value simple_schema(std::string_view type);
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

/// The section as a value: what `to_dict` is in NeMo AutoModel.
template <class T>
Value to_dict(const T& section) {
  return type_of<T>().dump(&section, Keys::kAll);
}
/// The same without the keys that are accepted and have no effect.
template <class T>
Value acting(const T& section) {
  return type_of<T>().dump(&section, Keys::kActing);
}

}  // namespace automodel::config
