#include "data/python_json.h"

#include "tokenizer/template_tree.h"

namespace automodel::data {

std::string python_json(const nlohmann::ordered_json& value, bool ascii) {
  const auto text = tokenizer::apply_filter("tojson", tokenizer::TemplateValue::from_json(value), {}, {});
  return ascii ? tokenizer::ascii_json(*text.as_text()) : *text.as_text();
}

std::string python_text(const nlohmann::ordered_json& value) {
  return tokenizer::TemplateValue::from_json(value).str();
}

}  // namespace automodel::data
