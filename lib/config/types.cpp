#include "config/types.h"

#include <algorithm>
#include <cctype>

#include "base/spelling.h"

namespace automodel::config::detail {
namespace {

/// Text that stands for a value of any type: `${NAME}`, and lists and mappings as text (from the environment).
Value or_text(const Value& schema) {
  Value text, out;
  text.set("$ref", "#/$defs/text");
  if (schema.map() == nullptr || schema.map()->empty()) return schema;
  Value::List any = {schema};
  if (const auto* inner = schema.find("anyOf"); inner != nullptr) any = *inner->list();
  any.push_back(text);
  out.set("anyOf", any);
  return out;
}

Value row_schema(const FieldInfo& field) {
  const bool section = field.type->fields != nullptr || field.type->choice != nullptr;
  Value out = section ? field.type->schema() : or_text(field.type->schema());
  out.set("description", field.ignored.empty()
                             ? std::string(field.doc)
                             : std::string(field.doc) + " Accepted, not acted on: " + std::string(field.ignored));
  if (field.type->fields == nullptr && field.type->choice == nullptr) out.set("default", field.initial);
  return out;
}

/// Adds the key and its aliases.
void add_row(Value& properties, const FieldInfo& field) {
  properties.set(field.key, row_schema(field));
  for (const auto alias : field.aliases) {
    Value schema = row_schema(field);
    schema.set("description", "Older spelling of " + std::string(field.key) + ".");
    properties.set(alias, schema);
  }
}

}  // namespace

Value dump_section(const void* section, const std::vector<FieldInfo>& fields, Keys keys) {
  Value out = Value::Map{};
  for (const auto& field : fields) {
    if (keys == Keys::kActing && !(field.ignored.empty() && field.unsupported.empty())) continue;
    const Value value = field.type->dump(field.of(section), keys);
    switch (field.form) {
      case FieldInfo::Form::kKey: out.map()->emplace_back(field.key, value); break;
      case FieldInfo::Form::kFlat:
      case FieldInfo::Form::kRest:
        if (const auto* map = value.map())
          for (const auto& [key, item] : *map) out.set(key, item);
        break;
      case FieldInfo::Form::kPrefix:
        for (const auto& [key, item] : *value.map()) out.set(std::string(field.key) + "_" + key, item);
        break;
    }
  }
  return out;
}

Value dump_choice(const void* variant, const Choice& choice, Keys keys) {
  const Alternative& alternative = choice.alternatives[choice.index(variant)];
  Value out = Value::Map{};
  out.set(choice.key, alternative.name);
  const Value section = alternative.type->dump(choice.get(variant), keys);
  for (const auto& [key, item] : *section.map()) out.set(key, item);
  return out;
}

Value section_schema(const std::vector<FieldInfo>& fields) {
  Value out;
  // `section:` without keys, and `none`, have the defaults; a mapping may be text (from the environment).
  out.set("type", Value::List{"object", "null", "string"});
  out.set("pattern", "^[Nn]one$|[$]|^ *[{]");
  Value properties = Value::Map{};
  Value patterns = Value::Map{};
  bool open = false;
  for (const auto& field : fields) {
    switch (field.form) {
      case FieldInfo::Form::kKey: add_row(properties, field); break;
      case FieldInfo::Form::kPrefix: {
        const Value schema = field.type->schema();
        const Value* items = schema.find("additionalProperties");
        patterns.set("^" + std::string(field.key) + "_", items != nullptr ? *items : Value(Value::Map{}));
        break;
      }
      case FieldInfo::Form::kRest: open = true; break;
      case FieldInfo::Form::kFlat: {
        const Choice& choice = field.type->choice();
        std::vector<std::string_view> names;
        for (const auto& alternative : choice.alternatives) {
          names.insert(names.end(), alternative.names.begin(), alternative.names.end());
          for (const auto& row : alternative.type->fields()) add_row(properties, row);
        }
        properties.set(choice.key, enum_schema(names));
        break;
      }
    }
  }
  out.set("properties", properties);
  if (!patterns.map()->empty()) out.set("patternProperties", patterns);
  out.set("additionalProperties", open);
  return out;
}

Value choice_schema(const Choice& choice) {
  Value::List all;
  for (std::size_t i = 0; i < choice.alternatives.size(); ++i) {
    const auto& alternative = choice.alternatives[i];
    Value section = alternative.type->schema();
    section.set("type", "object");
    Value properties = *section.find("properties");
    properties.set(choice.key, enum_schema(alternative.names));
    section.set("properties", properties);
    section.set("description", std::string(alternative.doc));
    if (i != choice.implied) section.set("required", Value::List{std::string(choice.key)});
    all.push_back(section);
  }
  Value out;
  out.set("anyOf", all);
  return out;
}

namespace {

/// `schema`, or text that reads as such a value: YAML's readers differ in what they take for a number or a boolean.
Value or_words(std::string_view type, std::string_view pattern) {
  Value text = simple_schema("string"), out;
  text.set("pattern", pattern);
  out.set("anyOf", Value::List{simple_schema(type), text});
  return out;
}

}  // namespace

Value boolean_schema() {
  return or_words("boolean", "^ *([Tt]rue|TRUE|[Ff]alse|FALSE|[Yy]es|YES|[Nn]o|NO|[Oo]n|ON|[Oo]ff|OFF) *$");
}
Value integer_schema() {
  return or_words("integer", "^ *[-+]?(0[xX][0-9a-fA-F_]+|[0-9][0-9_]*) *$");
}
Value number_schema() {
  return or_words("number", "^ *[-+]?([0-9._]+([eE][-+]?[0-9]+)?|0[xX][0-9a-fA-F_]+|[.](inf|Inf|INF|nan|NaN|NAN)) *$");
}
Value text_schema() {
  Value out;
  out.set("type", Value::List{"string", "number", "boolean"});
  return out;
}

bool takes_boolean(const Value& schema) {
  if (schema.map() == nullptr || schema.map()->empty()) return true;
  if (const auto* any = schema.find("anyOf"); any != nullptr)
    return std::ranges::any_of(*any->list(), [](const Value& each) { return takes_boolean(each); });
  if (const auto* words = schema.find("enum"); words != nullptr)
    return std::ranges::any_of(*words->list(), [](const Value& each) { return each == Value(true); });
  const auto* type = schema.find("type");
  if (type == nullptr) return false;
  return *type == Value("boolean");
}

Value simple_schema(std::string_view type) {
  Value out;
  out.set("type", type);
  return out;
}

Value null_schema() {
  Value out;
  out.set("enum", Value::List{nullptr, "null", "none", "None"});
  return out;
}

Value enum_schema(const std::vector<std::string_view>& names) {
  Value::List list;
  std::string pattern;
  bool truths = false, null = false;
  for (const auto name : names) {
    truths |= name == "true" || name == "false";
    null |= name == "null";
    list.emplace_back(name);
    pattern += pattern.empty() ? "" : "|";
    for (const char c : name) {
      const bool letter = std::isalpha(static_cast<unsigned char>(c)) != 0;
      if (letter)
        pattern += {'[', static_cast<char>(std::toupper(static_cast<unsigned char>(c))),
                    static_cast<char>(std::tolower(static_cast<unsigned char>(c))), ']'};
      else
        pattern += c == '.' ? std::string("[.]") : std::string(1, c);
    }
  }
  for (const bool each : {false, true})
    if (truths) list.emplace_back(each);
  if (null) list.emplace_back(nullptr);
  Value words, any_case = simple_schema("string"), out;
  words.set("enum", list);
  any_case.set("pattern", "^(" + pattern + ")$");
  out.set("anyOf", Value::List{words, any_case});
  return out;
}

std::string enum_type_name(const std::vector<std::string_view>& names) {
  return "one of " + join(names);
}

}  // namespace automodel::config::detail
