// The TypeInfo of every type that a Field may have. Headers of sections include this.
#pragma once

#include <array>
#include <map>
#include <optional>
#include <string>
#include <variant>
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

template <class T>
concept Section = requires {
  typename T::IsSection;
};

template <class T>
struct VectorOf : std::false_type {};
template <class T>
struct VectorOf<std::vector<T>> : std::true_type {
  using Item = T;
};
template <class T>
struct ArrayOf : std::false_type {};
template <class T, std::size_t N>
struct ArrayOf<std::array<T, N>> : std::true_type {
  using Item = T;
  static constexpr std::size_t kSize = N;
};
template <class T>
struct MapOf : std::false_type {};
template <class T>
struct MapOf<std::map<std::string, T>> : std::true_type {
  using Item = T;
};
template <class T>
struct VariantOf : std::false_type {};
template <class... T>
struct VariantOf<std::variant<T...>> : std::true_type {};

template <class E>
std::vector<std::string_view> enum_names() {
  std::vector<std::string_view> names;
  names.reserve(std::size(EnumNames<E>::names));
  for (const auto& row : EnumNames<E>::names) names.push_back(row.name);
  return names;
}

enum class ScalarKind { kBoolean, kInt, kInt64, kDouble, kString, kDType, kValue };
TypeInfo scalar_type(ScalarKind kind);

template <class E>
struct Enumerated {
  static std::string name() { return enum_type_name(enum_names<E>()); }
  static void read(Reader& reader, const Node& node, const std::string& path, void* out) {
    const int index = read_word(reader, node, path, enum_names<E>());
    if (index >= 0) *static_cast<E*>(out) = EnumNames<E>::names[static_cast<std::size_t>(index)].value;
  }
  static Value dump(const void* value, Keys) {
    for (const auto& row : EnumNames<E>::names)
      if (row.value == *static_cast<const E*>(value)) return row.name == "false" ? Value(false) : Value(row.name);
    return nullptr;
  }
  static Value schema() { return enum_schema(enum_names<E>()); }
};

template <class T>
struct Optional {
  using Inner = typename T::value_type;
  static std::string name() { return type_of<Inner>().name() + " or null"; }
  static void read(Reader& reader, const Node& node, const std::string& path, void* out) {
    auto& value = *static_cast<T*>(out);
    if (!present(node)) return value.reset();
    type_of<Inner>().read(reader, node, path, &value.emplace());
  }
  static Value dump(const void* value, Keys keys) {
    const auto& typed = *static_cast<const T*>(value);
    return typed ? type_of<Inner>().dump(&*typed, keys) : Value();
  }
  static Value schema() {
    Value out;
    out.set("anyOf", Value::List{type_of<Inner>().schema(), simple_schema("null")});
    return out;
  }
};

template <class T>
struct Listed {
  using Item = typename T::value_type;
  static constexpr std::size_t kSize = [] {
    if constexpr (ArrayOf<T>::value) return ArrayOf<T>::kSize;
    return std::size_t{0};
  }();
  static std::string name() {
    return (kSize > 0 ? "list of " + std::to_string(kSize) + " items, each " : "list of ") + type_of<Item>().name();
  }
  static void read(Reader& reader, const Node& node, const std::string& path, void* out) {
    auto& list = *static_cast<T*>(out);
    if constexpr (kSize == 0) list.clear();
    read_list(reader, node, path, name(), kSize, [&](std::size_t i, const Node& item, const std::string& item_path) {
      if constexpr (kSize == 0)
        type_of<Item>().read(reader, item, item_path, &list.emplace_back());
      else
        type_of<Item>().read(reader, item, item_path, &list[i]);
    });
  }
  static Value dump(const void* value, Keys keys) {
    Value::List out;
    for (const auto& item : *static_cast<const T*>(value)) out.push_back(type_of<Item>().dump(&item, keys));
    return out;
  }
  static Value schema() {
    Value out = simple_schema("array");
    out.set("items", type_of<Item>().schema());
    return out;
  }
};

template <class T>
struct Mapped {
  using Item = typename MapOf<T>::Item;
  static std::string name() { return "mapping"; }
  static void read(Reader& reader, const Node& node, const std::string& path, void* out) {
    auto& map = *static_cast<T*>(out);
    read_map(reader, node, path, [&](const std::string& key, const Node& item, const std::string& item_path) {
      type_of<Item>().read(reader, item, item_path, &map[key]);
    });
  }
  static Value dump(const void* value, Keys keys) {
    Value out = Value::Map{};
    for (const auto& [key, item] : *static_cast<const T*>(value)) out.set(key, type_of<Item>().dump(&item, keys));
    return out;
  }
  static Value schema() {
    Value out = simple_schema("object");
    out.set("additionalProperties", type_of<Item>().schema());
    return out;
  }
};

template <class T>
struct Sectioned {
  static std::string name() { return "mapping"; }
  static void read(Reader& reader, const Node& node, const std::string& path, void* out) {
    read_section(reader, node, path, out, fields_of<T>());
  }
  static Value dump(const void* value, Keys keys) { return dump_section(value, fields_of<T>(), keys); }
  static Value schema() { return section_schema(fields_of<T>()); }
};

/// A variant of sections. Each alternative T has `static constexpr std::array targets` (spellings, the native one
/// first), `static constexpr std::string_view kDoc`, and `kImplied = true` if it is meant where the key is absent.
template <class V>
struct Chosen {
  template <std::size_t I>
  static Alternative alternative() {
    using T = std::variant_alternative_t<I, V>;
    std::string_view plan_only;
    if constexpr (requires { T::kPlanOnly; }) plan_only = T::kPlanOnly;
    return {T::targets[0],
            {T::targets.begin(), T::targets.end()},
            T::kDoc,
            &type_of<T>(),
            [](void* variant) -> void* { return &static_cast<V*>(variant)->template emplace<I>(); },
            plan_only};
  }
  template <std::size_t... I>
  static Choice make(std::index_sequence<I...>) {
    Choice choice{ChoiceKey<V>::value,
                  {alternative<I>()...},
                  sizeof...(I),
                  [](const void* variant) { return static_cast<const V*>(variant)->index(); },
                  [](const void* variant) {
                    return std::visit([](const auto& held) -> const void* { return &held; },
                                      *static_cast<const V*>(variant));
                  }};
    ((choice.implied = requires { std::variant_alternative_t<I, V>::kImplied; } ? I : choice.implied), ...);
    return choice;
  }
  static const Choice& choice() {
    static const Choice instance = make(std::make_index_sequence<std::variant_size_v<V>>());
    return instance;
  }
  static std::string name() { return "mapping"; }
  static void read(Reader& reader, const Node& node, const std::string& path, void* out) {
    read_choice(reader, node, path, out, choice());
  }
  static Value dump(const void* value, Keys keys) { return dump_choice(value, choice(), keys); }
  static Value schema() { return choice_schema(choice()); }
};

template <class T>
constexpr ScalarKind scalar_kind() {
  if constexpr (std::is_same_v<T, bool>)
    return ScalarKind::kBoolean;
  else if constexpr (std::is_same_v<T, int>)
    return ScalarKind::kInt;
  else if constexpr (std::is_same_v<T, std::int64_t>)
    return ScalarKind::kInt64;
  else if constexpr (std::is_same_v<T, double>)
    return ScalarKind::kDouble;
  else if constexpr (std::is_same_v<T, std::string>)
    return ScalarKind::kString;
  else if constexpr (std::is_same_v<T, DType>)
    return ScalarKind::kDType;
  else {
    static_assert(std::is_same_v<T, Value>, "a Field needs a type that a recipe can hold");
    return ScalarKind::kValue;
  }
}

template <class T>
TypeInfo make_type() {
  if constexpr (requires { T::config_type(); })
    return T::config_type();  // a type that reads itself
  else if constexpr (Section<T>)
    return {Sectioned<T>::name, Sectioned<T>::read, Sectioned<T>::dump, Sectioned<T>::schema, fields_of<T>};
  else if constexpr (VariantOf<T>::value)
    return {Chosen<T>::name, Chosen<T>::read, Chosen<T>::dump, Chosen<T>::schema, nullptr, Chosen<T>::choice};
  else if constexpr (IsOptional<T>::value)
    return {Optional<T>::name,
            Optional<T>::read,
            Optional<T>::dump,
            Optional<T>::schema,
            nullptr,
            nullptr,
            type_of<typename T::value_type>};
  else if constexpr (VectorOf<T>::value || ArrayOf<T>::value)
    return {Listed<T>::name,
            Listed<T>::read,
            Listed<T>::dump,
            Listed<T>::schema,
            nullptr,
            nullptr,
            type_of<typename T::value_type>};
  else if constexpr (MapOf<T>::value)
    return {Mapped<T>::name,
            Mapped<T>::read,
            Mapped<T>::dump,
            Mapped<T>::schema,
            nullptr,
            nullptr,
            type_of<typename MapOf<T>::Item>};
  else if constexpr (std::is_enum_v<T> && !std::is_same_v<T, DType>)
    return {Enumerated<T>::name, Enumerated<T>::read, Enumerated<T>::dump, Enumerated<T>::schema};
  else
    return scalar_type(scalar_kind<T>());
}

}  // namespace detail

template <class T>
const TypeInfo& type_of() {
  static const TypeInfo info = detail::make_type<T>();
  return info;
}

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
