// Values of chat templates: Python's, to the extent that Jinja exposes them.
#pragma once

#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include <nlohmann/json_fwd.hpp>

namespace automodel::tokenizer {

/// Aborts the rendering of a template; `line` is the template's line, 0 if unknown.
class TemplateError : public std::runtime_error {
 public:
  explicit TemplateError(const std::string& message, int at_line = 0) : std::runtime_error(message), line(at_line) {}
  int line;
};

struct TemplateValue;
using TemplateList = std::vector<TemplateValue>;
using TemplateDict = std::vector<std::pair<std::string, TemplateValue>>;  ///< in insertion order

/// Lists and dictionaries have reference semantics, as in Python.
struct TemplateValue {
  struct Undefined {
    bool operator==(const Undefined&) const = default;
  };
  struct None {
    bool operator==(const None&) const = default;
  };
  using Storage = std::variant<Undefined, None, bool, std::int64_t, double, std::string, std::shared_ptr<TemplateList>,
                               std::shared_ptr<TemplateDict>>;
  Storage data = Undefined{};

  TemplateValue() = default;
  TemplateValue(Storage storage) : data(std::move(storage)) {}  // NOLINT(google-explicit-constructor): any of its kinds
  static TemplateValue none() { return Storage(None{}); }
  static TemplateValue text(std::string value) { return Storage(std::move(value)); }
  static TemplateValue list(TemplateList items) { return Storage(std::make_shared<TemplateList>(std::move(items))); }
  static TemplateValue dict(TemplateDict items) { return Storage(std::make_shared<TemplateDict>(std::move(items))); }
  static TemplateValue from_json(const nlohmann::ordered_json& value);

  bool is_undefined() const { return std::holds_alternative<Undefined>(data); }
  bool is_none() const { return std::holds_alternative<None>(data); }
  const std::string* as_text() const { return std::get_if<std::string>(&data); }
  const bool* as_bool() const { return std::get_if<bool>(&data); }
  const std::int64_t* as_int() const { return std::get_if<std::int64_t>(&data); }
  bool is_number() const { return as_int() != nullptr || std::holds_alternative<double>(data) || as_bool() != nullptr; }
  double number() const;  ///< requires is_number()
  TemplateList* as_list() const;
  TemplateDict* as_dict() const;

  bool truth() const;
  bool equals(const TemplateValue& other) const;
  /// Python's name of the type, for messages.
  std::string_view type() const;
  /// str() and repr().
  std::string str() const;
  std::string repr() const;
  nlohmann::ordered_json to_json() const;
};

/// The value of a key; null if absent.
TemplateValue* find_item(TemplateDict& dict, std::string_view key);
void set_item(TemplateDict& dict, std::string_view key, TemplateValue value);

}  // namespace automodel::tokenizer
