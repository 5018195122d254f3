// Generates the TypeInfo of every type that a Field may have. Included only by type_table.cpp, for everything in a
// recipe, and by the sources of sections defined elsewhere; any other inclusion would only compile the same code again.
// Hence a separate header, and `noinline` so that the functions are emitted for other sources to call.
#pragma once

#include <array>
#include <cstddef>
#include <map>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "config/types.h"

namespace automodel::config {

template <class Section>
const std::vector<FieldInfo>& fields_of() {
  static const std::vector<FieldInfo> fields = [] {
    auto storage = std::make_unique<std::byte[]>(sizeof(Section) + alignof(Section));
    void* place = storage.get();
    std::size_t space = sizeof(Section) + alignof(Section);
    std::align(alignof(Section), sizeof(Section), place, space);
    detail::Collector collector(place, sizeof(Section));
    auto* section = new (place) Section();
    section->~Section();
    return collector.take();
  }();
  return fields;
}

namespace detail {

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
    out.set("anyOf", Value::List{type_of<Inner>().schema(), null_schema()});
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

/// A variant of sections. Each alternative T has `static constexpr std::array targets` (spellings, the canonical one
/// first), `static constexpr std::string_view kDoc`, and `kImplied = true` if it is the choice when the key is absent.
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
[[gnu::noinline]] const TypeInfo& type_of() {
  static const TypeInfo info = detail::make_type<T>();
  return info;
}

}  // namespace automodel::config
