#include "arch/config_reader.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/spelling.h"

namespace automodel::arch {
namespace {

using Json = nlohmann::json;

/// The value as JSON, truncated to fit a message.
std::string shown(const Json& value) {
  auto text = value.dump(-1, ' ', false, Json::error_handler_t::replace);
  return text.size() > 60 ? text.substr(0, 57) + "..." : text;
}

}  // namespace

ConfigReader::ConfigReader(const Json& object, const ConfigText& source, std::string path, Diagnostics& problems)
    : ConfigReader(object, source, std::move(path), problems, std::make_shared<AskedByPath>()) {}

ConfigReader::ConfigReader(const Json& object, const ConfigText& source, std::string path, Diagnostics& problems,
                           std::shared_ptr<AskedByPath> asked)
    : object_(&object), source_(&source), path_(std::move(path)), problems_(&problems), asked_(std::move(asked)) {
  (*asked_)[path_].object = object_;
}

bool ConfigReader::has(std::string_view key) const {
  const auto found = object_->find(std::string(key));
  return found != object_->end() && !found->is_null();
}

bool ConfigReader::mentions(std::string_view key) const {
  return object_->contains(std::string(key));
}

bool ConfigReader::is_list(std::string_view key) const {
  const auto found = object_->find(std::string(key));
  return found != object_->end() && found->is_array();
}

bool ConfigReader::is_text(std::string_view key) const {
  const auto found = object_->find(std::string(key));
  return found != object_->end() && found->is_string();
}

const Json* ConfigReader::find(Keys keys, std::string_view& key) {
  const Json* out = nullptr;
  for (const auto candidate : keys) {
    (*asked_)[path_].keys.emplace(candidate);
    const auto found = object_->find(std::string(candidate));
    if (out == nullptr && found != object_->end() && !found->is_null()) {
      out = &*found;
      key = candidate;
    }
  }
  return out;
}

SourceLocation ConfigReader::place(std::string_view key) const {
  SourceLocation out{source_->file};
  // The JSON parser keeps no locations, so search the text for the quoted key followed by a colon, after the key of its
  // object.
  std::size_t from = 0;
  if (!path_.empty()) {
    const auto dot = path_.rfind('.');
    from = source_->text.find(fmt::format("\"{}\"", path_.substr(dot == std::string::npos ? 0 : dot + 1)));
    if (from == std::string_view::npos) return out;
  }
  const auto at = source_->text.find(fmt::format("\"{}\"", key), from);
  if (at == std::string_view::npos) return out;
  const auto before = source_->text.substr(0, at);
  out.line = static_cast<int>(std::count(before.begin(), before.end(), '\n')) + 1;
  const auto line_start = before.rfind('\n');
  out.column = static_cast<int>(at - (line_start == std::string_view::npos ? 0 : line_start + 1)) + 1;
  return out;
}

Diagnostic& ConfigReader::refuse(ProblemId id, std::string_view key) {
  refused_.emplace(key);
  return problems_->add(id, path_.empty() ? std::string(key) : fmt::format("{}.{}", path_, key)).at(place(key));
}

void ConfigReader::bad_type(std::string_view key, const Json& value, std::string_view wanted) {
  refuse("bad-type", key).says("'{}' is {}", key, shown(value)).hint("it must be {}", wanted);
}

std::optional<int> ConfigReader::whole(std::string_view key, const Json& value, int least, int most) {
  const bool fraction = value.is_number_float() && value.get<double>() != std::floor(value.get<double>());
  if (!value.is_number() || fraction) {
    bad_type(key, value, "a whole number");
    return std::nullopt;
  }
  const double number = value.get<double>();
  if (number < least || number > most) {
    bad_value(key, fmt::format("'{}' is {}", key, shown(value)), fmt::format("it must be from {} to {}", least, most));
    return std::nullopt;
  }
  return static_cast<int>(number);
}

int ConfigReader::required(Keys keys, int least, int most) {
  std::string_view key;
  if (const Json* value = find(keys, key)) return whole(key, *value, least, most).value_or(least);
  refuse("missing-key", *keys.begin())
      .says("'{}' is missing", *keys.begin())
      .hint("the model's configuration must give it: a whole number of at least {}", least);
  return least;
}

int ConfigReader::integer(Keys keys, int otherwise, int least, int most) {
  std::string_view key;
  const Json* value = find(keys, key);
  return value == nullptr ? otherwise : whole(key, *value, least, most).value_or(otherwise);
}

std::optional<int> ConfigReader::integer(std::string_view name) {
  std::string_view key;
  const Json* value = find({name}, key);
  if (value == nullptr) return std::nullopt;
  return whole(key, *value, std::numeric_limits<int>::min(), std::numeric_limits<int>::max());
}

std::optional<double> ConfigReader::number(std::string_view name) {
  std::string_view key;
  const Json* value = find({name}, key);
  if (value == nullptr) return std::nullopt;
  if (value->is_number()) return value->get<double>();
  bad_type(key, *value, "a number");
  return std::nullopt;
}

double ConfigReader::number(Keys keys, double otherwise) {
  std::string_view key;
  const Json* value = find(keys, key);
  if (value == nullptr) return otherwise;
  if (value->is_number()) return value->get<double>();
  bad_type(key, *value, "a number");
  return otherwise;
}

bool ConfigReader::boolean(Keys keys, bool otherwise) {
  std::string_view key;
  const Json* value = find(keys, key);
  if (value == nullptr) return otherwise;
  if (value->is_boolean()) return value->get<bool>();
  bad_type(key, *value, "true or false");
  return otherwise;
}

std::string ConfigReader::text(Keys keys, std::string_view otherwise) {
  std::string_view key;
  const Json* value = find(keys, key);
  if (value == nullptr) return std::string(otherwise);
  if (value->is_string()) return value->get<std::string>();
  bad_type(key, *value, "a string");
  return std::string(otherwise);
}

std::vector<double> ConfigReader::numbers(std::string_view name, std::optional<double> null) {
  std::string_view key;
  const Json* value = find({name}, key);
  if (value == nullptr) return {};
  std::vector<double> out;
  for (const auto& each : value->is_array() ? *value : Json::array()) {
    const auto& word = each.is_object() ? each.value("__float__", Json()) : each;
    if (each.is_number())
      out.push_back(each.get<double>());
    else if (each.is_null() && null)
      out.push_back(*null);
    else if (word == "Infinity")
      out.push_back(std::numeric_limits<double>::infinity());
  }
  if (value->is_array() && out.size() == value->size()) return out;
  bad_type(key, *value, "a list of numbers");
  return {};
}

std::vector<std::string> ConfigReader::texts(std::string_view name) {
  std::string_view key;
  const Json* value = find({name}, key);
  if (value == nullptr) return {};
  if (value->is_array() && std::all_of(value->begin(), value->end(), [](const Json& v) { return v.is_string(); }))
    return value->get<std::vector<std::string>>();
  bad_type(key, *value, "a list of strings");
  return {};
}

std::vector<int> ConfigReader::integers(std::string_view name) {
  std::string_view key;
  const Json* value = find({name}, key);
  if (value == nullptr) return {};
  std::vector<int> out;
  const auto take = [&](const Json& one) {
    if (const auto number = whole(key, one, std::numeric_limits<int>::min(), std::numeric_limits<int>::max()))
      out.push_back(*number);
  };
  if (!value->is_array())
    take(*value);
  else
    for (const auto& one : *value) take(one);
  return out;
}

std::optional<ConfigReader> ConfigReader::child(std::string_view name) {
  std::string_view key;
  const Json* value = find({name}, key);
  if (value == nullptr) return std::nullopt;
  if (value->is_object())
    return ConfigReader(*value, *source_, path_.empty() ? std::string(key) : fmt::format("{}.{}", path_, key),
                        *problems_, asked_);
  bad_type(key, *value, "a mapping");
  return std::nullopt;
}

std::vector<ConfigReader> ConfigReader::children(std::string_view name) {
  std::string_view key;
  const Json* value = find({name}, key);
  if (value == nullptr) return {};
  if (!value->is_array() || !std::all_of(value->begin(), value->end(), [](const Json& v) { return v.is_object(); })) {
    bad_type(key, *value, "a list of mappings");
    return {};
  }
  std::vector<ConfigReader> out;
  for (std::size_t i = 0; i < value->size(); ++i)
    out.push_back(ConfigReader((*value)[i], *source_,
                               path_.empty() ? fmt::format("{}.{}", key, i) : fmt::format("{}.{}.{}", path_, key, i),
                               *problems_, asked_));
  return out;
}

bool ConfigReader::good(Keys keys) const {
  return std::none_of(keys.begin(), keys.end(),
                      [&](std::string_view key) { return refused_.find(key) != refused_.end(); });
}

void ConfigReader::ignore(Keys keys) {
  for (const auto key : keys) (*asked_)[path_].keys.emplace(key);
}

void ConfigReader::refuse_unread() {
  for (const auto& [path, asked] : *asked_) {
    const bool below = path_.empty() || path == path_ || path.rfind(path_ + ".", 0) == 0;
    if (!below) continue;
    ConfigReader reader(*asked.object, *source_, path, *problems_, asked_);
    const std::vector<std::string_view> known(asked.keys.begin(), asked.keys.end());
    for (const auto& [key, value] : asked.object->items())
      if (asked.keys.find(key) == asked.keys.end())
        reader.refuse("unknown-key", key).says("unknown key '{}'", key).hint(suggestion(key, known));
  }
}

}  // namespace automodel::arch
