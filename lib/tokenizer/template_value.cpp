#include "tokenizer/template_value.h"

#include <array>
#include <charconv>
#include <cmath>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace automodel::tokenizer {
namespace {

constexpr std::array<std::string_view, 8> kTypes = {"undefined", "NoneType", "bool", "int",
                                                    "float",     "str",      "list", "dict"};

/// A string as Python's repr writes it: single-quoted, unless it contains single but no double quotes.
std::string quoted(const std::string& text) {
  const char quote = text.find('\'') != std::string::npos && text.find('"') == std::string::npos ? '"' : '\'';
  std::string out(1, quote);
  for (const char c : text) {
    switch (c) {
      case '\n': out += "\\n"; break;
      case '\r': out += "\\r"; break;
      case '\t': out += "\\t"; break;
      case '\\': out += "\\\\"; break;
      default:
        if (c == quote) out += '\\';
        if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F)
          out += fmt::format("\\x{:02x}", static_cast<int>(c));
        else
          out += c;
    }
  }
  return out + quote;
}

std::string float_text(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  std::string out = fmt::format("{}", value);
  if (out.find_first_of(".e") == std::string::npos) out += ".0";
  return out;
}

}  // namespace

TemplateValue TemplateValue::from_json(const nlohmann::ordered_json& value) {
  switch (value.type()) {
    case nlohmann::json::value_t::boolean: return Storage(value.get<bool>());
    case nlohmann::json::value_t::number_integer:
    case nlohmann::json::value_t::number_unsigned: return Storage(value.get<std::int64_t>());
    case nlohmann::json::value_t::number_float: return Storage(value.get<double>());
    case nlohmann::json::value_t::string: return text(value.get<std::string>());
    case nlohmann::json::value_t::array: {
      TemplateList out;
      for (const auto& item : value) out.push_back(from_json(item));
      return list(std::move(out));
    }
    case nlohmann::json::value_t::object: {
      TemplateDict out;
      for (const auto& [key, item] : value.items()) out.emplace_back(key, from_json(item));
      return dict(std::move(out));
    }
    case nlohmann::json::value_t::null:
    case nlohmann::json::value_t::binary:
    case nlohmann::json::value_t::discarded: break;
  }
  return none();
}

nlohmann::ordered_json TemplateValue::to_json() const {
  if (const auto* value = as_bool()) return *value;
  if (const auto* value = as_int()) return *value;
  if (const auto* value = std::get_if<double>(&data)) return *value;
  if (const auto* value = as_text()) return *value;
  if (const auto* items = as_list()) {
    auto out = nlohmann::ordered_json::array();
    for (const auto& item : *items) out.push_back(item.to_json());
    return out;
  }
  if (const auto* items = as_dict()) {
    auto out = nlohmann::ordered_json::object();
    for (const auto& [key, item] : *items) out[key] = item.to_json();
    return out;
  }
  if (is_undefined()) throw TemplateError("an undefined value has no JSON");
  return nullptr;
}

double TemplateValue::number() const {
  if (const auto* value = as_int()) return static_cast<double>(*value);
  if (const auto* value = as_bool()) return *value ? 1 : 0;
  return std::get<double>(data);
}

TemplateList* TemplateValue::as_list() const {
  const auto* held = std::get_if<std::shared_ptr<TemplateList>>(&data);
  return held == nullptr ? nullptr : held->get();
}

TemplateDict* TemplateValue::as_dict() const {
  const auto* held = std::get_if<std::shared_ptr<TemplateDict>>(&data);
  return held == nullptr ? nullptr : held->get();
}

bool TemplateValue::truth() const {
  if (is_number()) return number() != 0;
  if (const auto* value = as_text()) return !value->empty();
  if (const auto* items = as_list()) return !items->empty();
  if (const auto* items = as_dict()) return !items->empty();
  return false;
}

bool TemplateValue::equals(const TemplateValue& other) const {
  if (is_number() && other.is_number()) return number() == other.number();
  if (data.index() != other.data.index()) return false;
  if (const auto* items = as_list()) {
    const auto* others = other.as_list();
    if (items->size() != others->size()) return false;
    for (std::size_t i = 0; i < items->size(); ++i)
      if (!(*items)[i].equals((*others)[i])) return false;
    return true;
  }
  if (auto* items = as_dict()) {
    auto* others = other.as_dict();
    if (items->size() != others->size()) return false;
    for (const auto& [key, item] : *items) {
      const auto* found = find_item(*others, key);
      if (found == nullptr || !item.equals(*found)) return false;
    }
    return true;
  }
  return data == other.data;
}

std::string_view TemplateValue::type() const {
  return kTypes[data.index()];
}

std::string TemplateValue::str() const {
  if (const auto* value = as_text()) return *value;
  return is_undefined() ? "" : repr();
}

std::string TemplateValue::repr() const {
  if (const auto* value = as_bool()) return *value ? "True" : "False";
  if (const auto* value = as_int()) return std::to_string(*value);
  if (const auto* value = std::get_if<double>(&data)) return float_text(*value);
  if (const auto* value = as_text()) return quoted(*value);
  if (is_none()) return "None";
  if (is_undefined()) return "Undefined";
  std::string out;
  if (const auto* items = as_list()) {
    for (const auto& item : *items) out += (out.empty() ? "" : ", ") + item.repr();
    return "[" + out + "]";
  }
  for (const auto& [key, item] : *as_dict()) out += (out.empty() ? "" : ", ") + quoted(key) + ": " + item.repr();
  return "{" + out + "}";
}

TemplateValue* find_item(TemplateDict& dict, std::string_view key) {
  for (auto& [name, value] : dict)
    if (name == key) return &value;
  return nullptr;
}

void set_item(TemplateDict& dict, std::string_view key, TemplateValue value) {
  if (auto* found = find_item(dict, key))
    *found = std::move(value);
  else
    dict.emplace_back(std::string(key), std::move(value));
}

}  // namespace automodel::tokenizer
