#include "tokenizer/template_value.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "tokenizer/unicode.h"

namespace automodel::tokenizer {

struct TemplateValue::List {
  TemplateList items;
  int depth;
};
struct TemplateValue::Dict {
  TemplateDict items;
  int depth;
  bool changes;  ///< a namespace
};

namespace {

constexpr std::array<std::string_view, 8> kTypes = {"undefined", "NoneType", "bool", "int",
                                                    "float",     "str",      "list", "dict"};

/// A string as Python's repr writes it: single-quoted, unless it contains single but no double quotes.
void quote(const std::string& text, TemplateText& out) {
  const char mark = text.find('\'') != std::string::npos && text.find('"') == std::string::npos ? '"' : '\'';
  const auto one = [&](char c) { out.add(std::string_view(&c, 1)); };
  one(mark);
  for (const char c : text) {
    switch (c) {
      case '\n': out.add("\\n"); break;
      case '\r': out.add("\\r"); break;
      case '\t': out.add("\\t"); break;
      case '\\': out.add("\\\\"); break;
      default:
        if (c == mark) one('\\');
        if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F)
          out.add(fmt::format("\\x{:02x}", static_cast<int>(c)));
        else
          one(c);
    }
  }
  one(mark);
}

std::string float_text(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  std::string out = fmt::format("{}", value);
  if (out.find_first_of(".e") == std::string::npos) out += ".0";
  return out;
}

/// The depth of a value that holds this one.
int depth_around(const TemplateValue& value) {
  if (value.is_namespace()) throw TemplateError("a namespace cannot be part of another value");
  return value.depth() + 1;
}

int depth_around(const TemplateDict& items, TemplateBudget& budget) {
  budget.step(static_cast<std::int64_t>(items.size()));
  int depth = 1;
  for (const auto& [key, item] : items) depth = std::max(depth, depth_around(item));
  TemplateBudget::check_value_depth(depth);
  return depth;
}

/// The index of a key; the size if absent.
std::size_t place_of(const TemplateDict& dict, std::string_view key, TemplateBudget& budget) {
  for (std::size_t i = 0; i < dict.size(); ++i) {
    if (i % 16 == 15) budget.step();
    if (dict[i].first.size() != key.size()) continue;
    budget.read(key.size());
    if (dict[i].first == key) return i;
  }
  return dict.size();
}

void write_repr(const TemplateValue& value, TemplateText& out) {
  out.budget().step();
  if (const auto* flag = value.as_bool()) {
    out.add(*flag ? "True" : "False");
  } else if (const auto* whole = value.as_int()) {
    out.add(std::to_string(*whole));
  } else if (value.is_number()) {
    out.add(float_text(value.number()));
  } else if (const auto* text = value.as_text()) {
    quote(*text, out);
  } else if (const auto* items = value.as_list()) {
    out.add("[");
    for (std::size_t i = 0; i < items->size(); ++i) {
      if (i > 0) out.add(", ");
      write_repr((*items)[i], out);
    }
    out.add("]");
  } else if (const auto* members = value.as_dict()) {
    out.add("{");
    for (std::size_t i = 0; i < members->size(); ++i) {
      if (i > 0) out.add(", ");
      quote((*members)[i].first, out);
      out.add(": ");
      write_repr((*members)[i].second, out);
    }
    out.add("}");
  } else {
    out.add(value.is_none() ? "None" : "Undefined");
  }
}

}  // namespace

TemplateValue TemplateValue::paid(std::string value) {
  return Storage(std::make_shared<const std::string>(std::move(value)));
}

TemplateValue TemplateValue::text(std::string value, TemplateBudget& budget) {
  budget.step();
  budget.write(value.size());
  return paid(std::move(value));
}

TemplateValue TemplateValue::list(TemplateList items, TemplateBudget& budget) {
  budget.step(static_cast<std::int64_t>(items.size()));
  int depth = 1;
  for (const auto& item : items) depth = std::max(depth, depth_around(item));
  TemplateBudget::check_value_depth(depth);
  return Storage(std::make_shared<const List>(List{std::move(items), depth}));
}

TemplateValue TemplateValue::dict(TemplateDict items, TemplateBudget& budget) {
  const int depth = depth_around(items, budget);
  return Storage(std::make_shared<Dict>(Dict{std::move(items), depth, false}));
}

TemplateValue TemplateValue::name_space(TemplateDict items, TemplateBudget& budget) {
  const int depth = depth_around(items, budget);
  return Storage(std::make_shared<Dict>(Dict{std::move(items), depth, true}));
}

TemplateValue TemplateValue::from_json(const nlohmann::ordered_json& value, TemplateBudget& budget) {
  const TemplateBudget::Level level(budget);
  budget.step();
  switch (value.type()) {
    case nlohmann::json::value_t::boolean: return Storage(value.get<bool>());
    case nlohmann::json::value_t::number_unsigned:
      if (value.get<std::uint64_t>() > std::numeric_limits<std::int64_t>::max())
        throw TemplateError("the number is too large");
      return Storage(value.get<std::int64_t>());
    case nlohmann::json::value_t::number_integer: return Storage(value.get<std::int64_t>());
    case nlohmann::json::value_t::number_float: return Storage(value.get<double>());
    case nlohmann::json::value_t::string: return paid(value.get<std::string>());
    case nlohmann::json::value_t::array: {
      TemplateList out;
      for (const auto& item : value) out.push_back(from_json(item, budget));
      return list(std::move(out), budget);
    }
    case nlohmann::json::value_t::object: {
      TemplateDict out;
      for (const auto& [key, item] : value.items()) out.emplace_back(key, from_json(item, budget));
      return dict(std::move(out), budget);
    }
    case nlohmann::json::value_t::null:
    case nlohmann::json::value_t::binary:
    case nlohmann::json::value_t::discarded: break;
  }
  return none();
}

double TemplateValue::number() const {
  if (const auto* value = as_int()) return static_cast<double>(*value);
  if (const auto* value = as_bool()) return *value ? 1 : 0;
  if (const auto* value = std::get_if<double>(&data)) return *value;
  throw TemplateError(fmt::format("a number is expected, not {}", type()));
}

const std::string* TemplateValue::as_text() const {
  const auto* held = std::get_if<std::shared_ptr<const std::string>>(&data);
  return held == nullptr ? nullptr : held->get();
}

const TemplateList* TemplateValue::as_list() const {
  const auto* held = std::get_if<std::shared_ptr<const List>>(&data);
  return held == nullptr ? nullptr : &(*held)->items;
}

const TemplateDict* TemplateValue::as_dict() const {
  const auto* held = std::get_if<std::shared_ptr<Dict>>(&data);
  return held == nullptr ? nullptr : &(*held)->items;
}

bool TemplateValue::is_namespace() const {
  const auto* held = std::get_if<std::shared_ptr<Dict>>(&data);
  return held != nullptr && (*held)->changes;
}

void TemplateValue::assign(std::string_view key, TemplateValue value, TemplateBudget& budget) const {
  if (!is_namespace()) throw TemplateError(fmt::format("a member of {} cannot be set", type()));
  auto& dict = *std::get<std::shared_ptr<Dict>>(data);
  dict.depth = std::max(dict.depth, depth_around(value));
  TemplateBudget::check_value_depth(dict.depth);
  set_item(dict.items, key, std::move(value), budget);
}

int TemplateValue::depth() const {
  if (const auto* items = std::get_if<std::shared_ptr<const List>>(&data)) return (*items)->depth;
  if (const auto* items = std::get_if<std::shared_ptr<Dict>>(&data)) return (*items)->depth;
  return 0;
}

bool TemplateValue::truth() const {
  if (is_number()) return number() != 0;
  if (const auto* value = as_text()) return !value->empty();
  if (const auto* items = as_list()) return !items->empty();
  if (const auto* items = as_dict()) return !items->empty();
  return false;
}

bool TemplateValue::equals(const TemplateValue& other, TemplateBudget& budget) const {
  budget.step();
  if (is_number() && other.is_number()) return number() == other.number();
  if (data.index() != other.data.index()) return false;
  if (const auto* value = as_text()) {
    if (value->size() != other.as_text()->size()) return false;
    budget.read(value->size());
    return *value == *other.as_text();
  }
  if (const auto* items = as_list()) {
    const auto* others = other.as_list();
    if (items->size() != others->size()) return false;
    for (std::size_t i = 0; i < items->size(); ++i)
      if (!(*items)[i].equals((*others)[i], budget)) return false;
    return true;
  }
  if (const auto* items = as_dict()) {
    const auto* others = other.as_dict();
    if (items->size() != others->size()) return false;
    for (const auto& [key, item] : *items) {
      const auto* found = find_item(*others, key, budget);
      if (found == nullptr || !item.equals(*found, budget)) return false;
    }
    return true;
  }
  return data == other.data;
}

std::string_view TemplateValue::type() const {
  return kTypes[data.index()];
}

std::string TemplateValue::str(TemplateBudget& budget) const {
  if (is_undefined()) return "";
  const auto* value = as_text();
  if (value == nullptr) return repr(budget);
  budget.write(value->size());
  return *value;
}

std::string TemplateValue::repr(TemplateBudget& budget) const {
  TemplateText out(budget);
  write_repr(*this, out);
  return out.take();
}

const TemplateValue* find_item(const TemplateDict& dict, std::string_view key, TemplateBudget& budget) {
  const std::size_t at = place_of(dict, key, budget);
  return at < dict.size() ? &dict[at].second : nullptr;
}

void set_item(TemplateDict& dict, std::string_view key, TemplateValue value, TemplateBudget& budget) {
  if (const std::size_t at = place_of(dict, key, budget); at < dict.size()) {
    dict[at].second = std::move(value);
    return;
  }
  budget.step();
  budget.write(key.size());
  dict.emplace_back(std::string(key), std::move(value));
}

TemplateList items_of(const TemplateValue& value, TemplateBudget& budget) {
  TemplateList out;
  if (value.is_undefined()) return out;
  if (const auto* list = value.as_list()) {
    budget.step(static_cast<std::int64_t>(list->size()));
    return *list;
  }
  if (const auto* dict = value.as_dict()) {
    for (const auto& [key, item] : *dict) out.push_back(TemplateValue::text(key, budget));
    return out;
  }
  const auto* text = value.as_text();
  if (text == nullptr) throw TemplateError(fmt::format("{} has no items", value.type()));
  for (std::size_t at = 0; at < text->size();) {
    const std::size_t bytes = code_point_at(*text, at).bytes;
    out.push_back(TemplateValue::text(text->substr(at, bytes), budget));
    at += bytes;
  }
  return out;
}

}  // namespace automodel::tokenizer
