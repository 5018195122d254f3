#include "config/value.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "config/scalar.h"
#include "config/yaml_text.h"

namespace automodel::config {
namespace {

/// YAML accepts keys of more than 1024 characters only in explicit form, after a "?".
constexpr std::size_t kLongestPlainKey = 1000;

using Json = nlohmann::ordered_json;

Json json_of(const Value& value) {
  if (const auto* boolean = value.boolean()) return *boolean;
  if (const auto* integer = value.integer()) return *integer;
  if (const auto* number = value.number()) return std::isfinite(*number) ? Json(*number) : Json(number_text(*number));
  if (const auto* string = value.string()) return *string;
  if (const auto* list = value.list()) {
    Json out = Json::array();
    for (const auto& item : *list) out.push_back(json_of(item));
    return out;
  }
  if (const auto* map = value.map()) {
    Json out = Json::object();
    for (const auto& [key, item] : *map) out[key] = json_of(item);
    return out;
  }
  return nullptr;
}

bool is_scalar(const Value& value) {
  return value.list() == nullptr && value.map() == nullptr;
}

/// Words that other readers of YAML take for numbers, dates (0755, 0b1, 1:30, 2024-01-01) or truth values (y, N).
bool is_value_elsewhere(std::string_view text) {
  const auto digit = [&](std::size_t at) { return at < text.size() && text[at] >= '0' && text[at] <= '9'; };
  return digit(0) || ((text[0] == '+' || text[0] == '.') && digit(1)) ||
         (text.size() == 1 && std::string_view("yYnN").find(text[0]) != std::string_view::npos);
}

/// A string as it must be written in YAML to be read back as a string.
std::string yaml_string(const std::string& text) {
  const bool plain = !text.empty() && scalar_value(text, false).string() != nullptr &&
                     text.find_first_of("\n\t\"\\") == std::string::npos && is_yaml_literal(text) &&
                     !is_value_elsewhere(text) &&
                     std::string_view("!&*-?|>@`%'\",[]{}#:= ").find(text.front()) == std::string_view::npos &&
                     text.back() != ' ' && text.back() != ':' && text.find(": ") == std::string::npos &&
                     text.find(" #") == std::string::npos && text.find_first_of("[]{},$?") == std::string::npos;
  if (plain) return text;
  return is_yaml_literal(text) ? Json(text).dump(-1, ' ', false, Json::error_handler_t::replace) : yaml_quoted(text);
}

std::string yaml_scalar(const Value& value) {
  if (const auto* string = value.string()) return yaml_string(*string);
  if (const auto* number = value.number()) return number_text(*number);
  if (value.is_null()) return "null";
  if (const auto* map = value.map(); map != nullptr && map->empty()) return "{}";
  return to_json(value);
}

void write_yaml(std::string& out, const Value& value, int indent) {
  const std::string pad(static_cast<std::size_t>(indent), ' ');
  if (const auto* map = value.map(); map != nullptr && !map->empty()) {
    for (const auto& [key, item] : *map) {
      const bool nested = item.map() != nullptr && !item.map()->empty();
      const bool block = item.list() != nullptr && !std::all_of(item.list()->begin(), item.list()->end(), is_scalar);
      const std::string name = yaml_string(key);
      out += pad;
      out += name.size() > kLongestPlainKey ? fmt::format("? {}\n{}:", name, pad) : name + ":";
      if (nested || block) {
        out += "\n";
        write_yaml(out, item, indent + 2);
      } else {
        out += " ";
        write_yaml(out, item, 0);
      }
    }
  } else if (const auto* list = value.list(); list != nullptr && !std::all_of(list->begin(), list->end(), is_scalar)) {
    for (const auto& item : *list) {
      std::string text;
      write_yaml(text, item, indent + 2);
      out += pad + "- " + text.substr(std::min(text.size(), text.find_first_not_of(' ')));
    }
  } else if (list != nullptr) {
    std::string items;
    for (const auto& item : *list) items += (items.empty() ? "" : ", ") + yaml_scalar(item);
    out += pad + "[" + items + "]\n";
  } else {
    out += pad + yaml_scalar(value) + "\n";
  }
}

}  // namespace

Value::~Value() = default;
Value::Value(const Value&) = default;
Value::Value(Value&&) noexcept = default;
Value& Value::operator=(const Value&) = default;
Value& Value::operator=(Value&&) noexcept = default;
bool Value::operator==(const Value&) const = default;

const Value* Value::find(std::string_view key) const {
  const auto* entries = map();
  if (entries == nullptr) return nullptr;
  const auto found =
      std::find_if(entries->begin(), entries->end(), [&](const auto& entry) { return entry.first == key; });
  return found == entries->end() ? nullptr : &found->second;
}

void Value::set(std::string_view key, Value value) {
  if (map() == nullptr) data_ = Map{};
  auto& entries = *map();
  const auto found =
      std::find_if(entries.begin(), entries.end(), [&](const auto& entry) { return entry.first == key; });
  if (found == entries.end())
    entries.emplace_back(key, std::move(value));
  else
    found->second = std::move(value);
}

std::string to_json(const Value& value, int indent) {
  return json_of(value).dump(indent, ' ', false, Json::error_handler_t::replace);
}

std::string to_yaml(const Value& value, int indent) {
  std::string out;
  write_yaml(out, value, indent);
  return out;
}

std::string number_text(double number) {
  if (std::isnan(number)) return ".nan";
  if (std::isinf(number)) return number > 0 ? ".inf" : "-.inf";
  std::string text = fmt::format("{}", number);
  if (text.find_first_of(".en") == std::string::npos) text += ".0";
  return text;
}

}  // namespace automodel::config
