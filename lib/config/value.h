// A dynamically typed value: null, boolean, integer, number, string, list, or map in file order. Sections are dumped to
// it, and keys with free-form content (an inline Hugging Face config) hold one.
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
  // Defined in value.cpp, as are those of config::Recipe and estimate::EstimatedPlan: what holds values is in most
  // headers, and compiling how it is copied was a fifth of the time of many sources.
  ~Value();
  Value(const Value&);
  Value(Value&&) noexcept;
  Value& operator=(const Value&);
  Value& operator=(Value&&) noexcept;
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
  /// The entry `key` of a map; null if this is not a map or has no such entry.
  const Value* find(std::string_view key) const;
  /// Sets or adds an entry; a null value becomes a map first.
  void set(std::string_view key, Value value);

  bool operator==(const Value&) const;

 private:
  std::variant<std::nullptr_t, bool, std::int64_t, double, std::string, List, Map> data_ = nullptr;
};

/// JSON text. `indent` < 0: one line. Numbers print as the shortest text that round-trips; NaN and infinities print as
/// strings, since JSON has no numbers for them.
std::string to_json(const Value& value, int indent = -1);
/// YAML text in block style (flow style for lists of scalars), which parse_yaml reads back to the same value.
std::string to_yaml(const Value& value, int indent = 0);
/// The shortest text that round-trips to the same double, with ".0" appended if it would read back as an integer.
std::string number_text(double number);

}  // namespace automodel::config
