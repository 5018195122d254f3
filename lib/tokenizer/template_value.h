// Values of chat templates: Python's, to the extent that Jinja exposes them.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "tokenizer/template_budget.h"

namespace automodel::tokenizer {

struct TemplateValue;
using TemplateList = std::vector<TemplateValue>;
using TemplateDict = std::vector<std::pair<std::string, TemplateValue>>;  ///< in insertion order

/// What a list is in Python, which decides what can be done with it and how it prints.
enum class Sequence {
  kList,
  kTuple,
  kRange,      ///< prints as none of these do: refused
  kView,       ///< of a dictionary: has a length, but no places
  kGenerator,  ///< always true; its items can be taken once
};

/// Texts, lists and dictionaries never change once made, and are shared by their copies. Only namespaces change, and
/// they are never inside another value: values form no cycles, and the depth of each is known when it is made.
struct TemplateValue {
  struct Undefined {
    bool operator==(const Undefined&) const = default;
  };
  struct None {
    bool operator==(const None&) const = default;
  };
  /// A method of an object that is named without being called: defined and true, and nothing else.
  struct Method {
    bool operator==(const Method&) const = default;
  };
  struct List;
  struct Dict;
  using Storage = std::variant<Undefined, None, bool, std::int64_t, double, std::shared_ptr<const std::string>,
                               std::shared_ptr<const List>, std::shared_ptr<Dict>, Method>;
  Storage data = Undefined{};

  TemplateValue() = default;
  TemplateValue(Storage storage) : data(std::move(storage)) {}  // NOLINT(google-explicit-constructor): any of its kinds
  static TemplateValue none() { return Storage(None{}); }
  /// A text that was paid for (TemplateText) or is part of what was read.
  static TemplateValue paid(std::string value);
  static TemplateValue text(std::string value, TemplateBudget& budget);
  static TemplateValue list(TemplateList items, TemplateBudget& budget, Sequence kind = Sequence::kList);
  static TemplateValue dict(TemplateDict items, TemplateBudget& budget);
  static TemplateValue name_space(TemplateDict items, TemplateBudget& budget);
  static TemplateValue from_json(const nlohmann::ordered_json& value, TemplateBudget& budget);

  bool is_undefined() const { return std::holds_alternative<Undefined>(data); }
  bool is_none() const { return std::holds_alternative<None>(data); }
  const std::string* as_text() const;
  const bool* as_bool() const { return std::get_if<bool>(&data); }
  const std::int64_t* as_int() const { return std::get_if<std::int64_t>(&data); }
  bool is_number() const { return as_int() != nullptr || std::holds_alternative<double>(data) || as_bool() != nullptr; }
  double number() const;                ///< throws TemplateError unless is_number()
  const TemplateList* as_list() const;  ///< of lists, tuples and ranges: what has places
  std::optional<Sequence> sequence() const;
  const TemplateDict* as_dict() const;
  bool is_namespace() const;
  /// Sets a member of a namespace.
  void assign(std::string_view key, TemplateValue value, TemplateBudget& budget) const;
  int depth() const;  ///< 0 for what holds no items

  bool truth() const;
  bool equals(const TemplateValue& other, TemplateBudget& budget) const;
  /// Python's name of the type, for messages.
  std::string_view type() const;
  /// str() and repr().
  std::string str(TemplateBudget& budget) const;
  std::string repr(TemplateBudget& budget) const;
};

/// The value of a key; null if absent.
const TemplateValue* find_item(const TemplateDict& dict, std::string_view key, TemplateBudget& budget);
void set_item(TemplateDict& dict, std::string_view key, TemplateValue value, TemplateBudget& budget);

/// What iterating over a value yields: code points of a string, items of a list, keys of a dictionary. Undefined values
/// have none; of a generator, at most `most` are taken, and then gone.
TemplateList items_of(const TemplateValue& value, TemplateBudget& budget, std::size_t most = SIZE_MAX);

/// `object[key]`, and `object.name` with `attribute`, which prefers the methods of Python's object to the members of a
/// dictionary. Undefined where there is neither; throws where `object` is undefined.
TemplateValue member_of(const TemplateValue& object, const TemplateValue& key, bool attribute, TemplateBudget& budget);

std::size_t count_code_points(const std::string& text, TemplateBudget& budget);
/// Code points [from, to) of a text that has as many.
TemplateValue part_of(const std::string& text, std::size_t from, std::size_t to, TemplateBudget& budget);

}  // namespace automodel::tokenizer
