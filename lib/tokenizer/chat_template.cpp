#include "tokenizer/chat_template.h"

#include <utility>

#include <nlohmann/json.hpp>

namespace automodel::tokenizer {

std::unique_ptr<const ChatTemplate> ChatTemplate::parse(std::string_view source, const std::string& file,
                                                        Diagnostics& problems) {
  auto out = std::make_unique<ChatTemplate>();
  try {
    out->block_ = parse_template(source);
  } catch (const TemplateError& error) {
    problems.push_back({"bad-template",
                        error.what(),
                        "of Jinja, for, if, set, break, continue, filters, tests and methods of strings are understood",
                        {file, error.line, error.line > 0 ? 1 : 0},
                        ""});
    return nullptr;
  }
  return out;
}

std::string ChatTemplate::render(const nlohmann::ordered_json& messages, bool add_generation_prompt,
                                 const std::map<std::string, std::string, std::less<>>& roles) const {
  TemplateDict variables;
  for (const auto& [name, token] : roles) variables.emplace_back(name, TemplateValue::text(token));
  set_item(variables, "messages", TemplateValue::from_json(messages));
  set_item(variables, "add_generation_prompt", TemplateValue::Storage(add_generation_prompt));
  set_item(variables, "tools", TemplateValue::none());
  set_item(variables, "documents", TemplateValue::none());
  return render_template(block_, std::move(variables));
}

}  // namespace automodel::tokenizer
