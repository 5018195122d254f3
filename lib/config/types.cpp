#include "config/types.h"

#include "base/spelling.h"

namespace automodel::config::detail {
namespace {

Value row_schema(const FieldInfo& field) {
  Value out = field.type->schema();
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
  Value out = simple_schema("object");
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
  for (const auto& alternative : choice.alternatives) {
    Value section = alternative.type->schema();
    Value properties = *section.find("properties");
    properties.set(choice.key, enum_schema(alternative.names));
    section.set("properties", properties);
    section.set("description", std::string(alternative.doc));
    section.set("required", Value::List{std::string(choice.key)});
    all.push_back(section);
  }
  Value out;
  out.set("anyOf", all);
  return out;
}

Value simple_schema(std::string_view type) {
  Value out;
  out.set("type", type);
  return out;
}

Value enum_schema(const std::vector<std::string_view>& names) {
  Value::List list;
  for (const auto name : names) list.emplace_back(name);
  Value out;
  out.set("enum", list);
  return out;
}

std::string enum_type_name(const std::vector<std::string_view>& names) {
  return "one of " + join(names);
}

}  // namespace automodel::config::detail
