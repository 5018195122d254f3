#include "data/python_json.h"

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

}  // namespace automodel::data
