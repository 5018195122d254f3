// A typed value of no particular shape: null, boolean, integer, number, string, list or map in file order.
// What sections dump to, and what keys hold whose content belongs to somebody else (an inline Hugging Face config).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace automodel::config {

class Value {
 public:
  using List = std::vector<Value>;
  using Map = std::vector<std::pair<std::string, Value>>;  // in order; keys are unique

  Value() = default;
  Value(std::nullptr_t) {}                     // NOLINT(google-explicit-constructor): values read like
  Value(bool value) : data_(value) {}          // NOLINT: literals of JSON
  Value(std::int64_t value) : data_(value) {}  // NOLINT
  Value(int value) : data_(static_cast<std::int64_t>(value)) {}  // NOLINT
  Value(double value) : data_(value) {}                          // NOLINT
  Value(std::string value) : data_(std::move(value)) {}          // NOLINT
  Value(std::string_view value) : data_(std::string(value)) {}   // NOLINT
  Value(const char* value) : data_(std::string(value)) {}        // NOLINT
  Value(List value) : data_(std::move(value)) {}                 // NOLINT
  Value(Map value) : data_(std::move(value)) {}                  // NOLINT

  bool is_null() const { return std::holds_alternative<std::nullptr_t>(data_); }
  const bool* boolean() const { return std::get_if<bool>(&data_); }
  const std::int64_t* integer() const { return std::get_if<std::int64_t>(&data_); }
  const double* number() const { return std::get_if<double>(&data_); }
  const std::string* string() const { return std::get_if<std::string>(&data_); }
  const List* list() const { return std::get_if<List>(&data_); }
  const Map* map() const { return std::get_if<Map>(&data_); }
  Map* map() { return std::get_if<Map>(&data_); }
  /// The entry `key` of a map; null pointer where this is no map or has none.
  const Value* find(std::string_view key) const;
  /// Sets or adds an entry; this becomes a map if it is null.
  void set(std::string_view key, Value value);

  bool operator==(const Value&) const = default;

 private:
  std::variant<std::nullptr_t, bool, std::int64_t, double, std::string, List, Map> data_ = nullptr;
};

/// JSON text. `indent` < 0: one line. Numbers print as the shortest text that reads back to the same double; what JSON
/// has no number for (nan, inf) prints as a string.
std::string to_json(const Value& value, int indent = -1);
/// YAML text in block style (flow style for lists of scalars), which parse_yaml reads back to the same value.
std::string to_yaml(const Value& value, int indent = 0);
/// The shortest text that reads back to the same double, with ".0" where it would read back as an integer.
std::string number_text(double number);

}  // namespace automodel::config
