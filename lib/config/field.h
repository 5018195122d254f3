// One declaration per recipe key: its C++ member, name, default, documentation and validation rule.
//
//   struct PipelineConfig {
//     using IsSection = void;
//     Field<int> pp_microbatch_size{"pp_microbatch_size", 1, "Sequences in a microbatch.", at_least<1>};
//   };
//
// Parsing, defaults, to_dict, unknown-key errors, JSON Schema and documentation all derive from it. A Field<T> stores
// only the T; the other arguments are collected once per section type (fields_of) and otherwise discarded.
#pragma once

#include <cmath>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "config/type_info.h"

namespace automodel::config {

template <class T>
const TypeInfo& type_of();  // config/type_table.h

template <class T>
struct IsOptional : std::false_type {
  using Inner = T;
};
template <class T>
struct IsOptional<std::optional<T>> : std::true_type {
  using Inner = T;
};

/// Returns why a value is rejected ("must be at least 1"), or "". Not called for null.
template <class T>
using Check = std::string (*)(const T& value);

/// Marks a key that is accepted but has no effect; the reason is printed if a recipe sets it.
struct Ignored {
  std::string_view reason;
};
/// Marks a key that changes training in an unsupported way: the recipe can be planned but not trained. Null, false and
/// a mapping with `enabled: false` turn the key off.
struct Unsupported {
  std::string_view reason;
};
/// The section's keys are written among its parent's keys (a variant selected by a key of the parent).
struct Flat {};
/// Collects every key that starts with the field's key plus '_' into this map.
struct Prefix {};
/// Collects these keys into this Value; without a list, every key that the section does not name.
struct Rest {
  std::span<const std::string_view> keys = {};
};

namespace detail {

/// A table row with `key` split at '|': "seq_length|seq_len" declares a key and an alias.
FieldInfo named(std::string_view key, std::string_view doc);

/// Collects the fields of one section object during its construction. Fields at addresses outside [begin, begin +
/// size), which belong to temporaries, are skipped.
class Collector {
 public:
  Collector(const void* begin, std::size_t size);
  ~Collector();
  Collector(const Collector&) = delete;
  Collector& operator=(const Collector&) = delete;
  static Collector* active();
  void add(const void* member, FieldInfo info);
  std::vector<FieldInfo> take() { return std::move(fields_); }

 private:
  const char* begin_;
  std::size_t size_;
  Collector* outer_;
  std::vector<FieldInfo> fields_;
};

}  // namespace detail

template <class T>
class Field {
 public:
  using Type = T;
  using Checked = typename IsOptional<T>::Inner;

  Field(std::string_view key, T initial, std::string_view doc, std::type_identity_t<Check<Checked>> check = nullptr)
      : value_(std::move(initial)) {
    if (auto* collector = detail::Collector::active()) collector->add(this, info(key, doc, check));
  }
  Field(std::string_view key, T initial, std::string_view doc, Ignored ignored) : value_(std::move(initial)) {
    if (auto* collector = detail::Collector::active()) {
      auto row = info(key, doc, nullptr);
      row.ignored = ignored.reason;
      collector->add(this, std::move(row));
    }
  }
  Field(std::string_view key, T initial, std::string_view doc, Unsupported unsupported) : value_(std::move(initial)) {
    if (auto* collector = detail::Collector::active()) {
      auto row = info(key, doc, nullptr);
      row.unsupported = unsupported.reason;
      collector->add(this, std::move(row));
    }
  }
  Field(Flat, T initial, std::string_view doc) : value_(std::move(initial)) {
    special("", doc, FieldInfo::Form::kFlat);
  }
  Field(Prefix, std::string_view key, T initial, std::string_view doc) : value_(std::move(initial)) {
    special(key, doc, FieldInfo::Form::kPrefix);
  }
  Field(Rest rest, T initial, std::string_view doc) : value_(std::move(initial)) {
    special("", doc, FieldInfo::Form::kRest, rest.keys);
  }

  Field& operator=(T value) {
    value_ = std::move(value);
    return *this;
  }
  const T& operator()() const { return value_; }
  T& operator()() { return value_; }
  operator const T&() const { return value_; }  // NOLINT(google-explicit-constructor): a field reads as its value
  decltype(auto) operator->() const {
    if constexpr (IsOptional<T>::value)
      return value_.operator->();
    else
      return std::addressof(value_);
  }
  decltype(auto) operator->() {
    if constexpr (IsOptional<T>::value)
      return value_.operator->();
    else
      return std::addressof(value_);
  }
  bool operator==(const Field&) const = default;

 private:
  static FieldInfo info(std::string_view key, std::string_view doc, Check<Checked> check) {
    FieldInfo row = detail::named(key, doc);
    row.type = &type_of<T>();
    if (check != nullptr)
      row.check = [check](const void* value) -> std::string {
        const T& typed = *static_cast<const T*>(value);
        if constexpr (IsOptional<T>::value)
          return typed ? check(*typed) : std::string();
        else
          return check(typed);
      };
    return row;
  }
  void special(std::string_view key, std::string_view doc, FieldInfo::Form form,
               std::span<const std::string_view> collected = {}) {
    if (auto* collector = detail::Collector::active()) {
      auto row = info(key, doc, nullptr);
      row.form = form;
      row.collected = collected;
      collector->add(this, std::move(row));
    }
  }

  T value_;
};

/// The field table of a section type, in member order.
template <class Section>
const std::vector<FieldInfo>& fields_of();  // config/type_table.h

// Validation rules for Field. Those with a bound take it as a template argument: at_least<1>.
template <int kBound, class T>
std::string at_least(const T& value) {
  if constexpr (std::is_floating_point_v<T>)
    if (std::isinf(value)) return "must be finite";
  return value >= static_cast<T>(kBound) ? "" : "must be at least " + std::to_string(kBound);
}
template <class T>
std::string positive(const T& value) {
  return value > T{} ? "" : "must be greater than 0";
}
template <class T>
std::string fractions(const T& values) {
  for (const auto value : values)
    if (!(value >= 0 && value < 1)) return "must be numbers in [0, 1)";
  return "";
}
template <class T>
std::string fraction(const T& value) {
  return value >= T{0} && value < T{1} ? "" : "must be in [0, 1)";
}

}  // namespace automodel::config
