#include "data/python_json.h"

#include <functional>
#include <map>
#include <string_view>

#include <fmt/format.h>

#include "data/chat_format.h"
#include "tokenizer/template_tree.h"

namespace automodel::data {

std::string python_json(const nlohmann::ordered_json& value, bool ascii) {
  tokenizer::TemplateBudget budget;
  try {
    const auto text = tokenizer::apply_filter("tojson", tokenizer::TemplateValue::from_json(value, budget), {}, budget);
    return ascii ? tokenizer::ascii_json(*text.as_text()) : *text.as_text();
  } catch (const tokenizer::TemplateError& error) {
    throw RowRefused(error.what());
  }
}

std::string python_text(const nlohmann::ordered_json& value) {
  tokenizer::TemplateBudget budget;
  try {
    return tokenizer::TemplateValue::from_json(value, budget).str(budget);
  } catch (const tokenizer::TemplateError& error) {
    throw RowRefused(error.what());
  }
}

std::string tagged_text(const nlohmann::ordered_json& value) {
  std::string out;
  if (value.is_array()) {
    for (const auto& item : value) out += (&item == &value.front() ? "" : "<sep/>") + tagged_text(item);
    return out;
  }
  if (!value.is_object()) return python_text(value);
  if (value.size() == 1 && value.contains("text_sequence")) {
    if (!value["text_sequence"].is_string()) throw RowRefused("'text_sequence' is not text");
    return value["text_sequence"].get<std::string>();
  }
  std::map<std::string_view, const nlohmann::ordered_json*, std::greater<>> members;
  for (const auto& [name, member] : value.items()) members[name] = &member;
  for (const auto& [name, member] : members) out += fmt::format("<s_{}>{}</s_{}>", name, tagged_text(*member), name);
  return out;
}

}  // namespace automodel::data
