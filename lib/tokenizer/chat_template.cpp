#include "tokenizer/chat_template.h"

#include <utility>

#include <nlohmann/json.hpp>

namespace automodel::tokenizer {
namespace {

/// Null members of messages are dropped.
TemplateValue messages_value(const nlohmann::ordered_json& messages, TemplateBudget& budget) {
  if (!messages.is_array()) return TemplateValue::from_json(messages, budget);
  TemplateList out;
  for (const auto& message : messages) {
    if (!message.is_object()) {
      out.push_back(TemplateValue::from_json(message, budget));
      continue;
    }
    TemplateDict members;
    for (const auto& [key, item] : message.items())
      if (!item.is_null()) members.emplace_back(key, TemplateValue::from_json(item, budget));
    out.push_back(TemplateValue::dict(std::move(members), budget));
  }
  return TemplateValue::list(std::move(out), budget);
}

}  // namespace

std::unique_ptr<const ChatTemplate> ChatTemplate::parse(std::string_view source, const std::string& file,
                                                        Diagnostics& problems) {
  auto out = std::make_unique<ChatTemplate>();
  try {
    out->block_ = parse_template(source);
  } catch (const TemplateError& error) {
    problems.add("bad-template")
        .says(error.what())
        .hint("of Jinja, for, if, set, break, continue, filters, tests and methods of strings are understood")
        .at({file, error.line, error.line > 0 ? 1 : 0});
    return nullptr;
  }
  return out;
}

bool ChatTemplate::marks_generation(std::string_view source) {
  // {%, optional -, white space, the word, white space, optional -, %}
  constexpr std::string_view kWord = "generation", kBlanks = " \t\r\n\f\v";
  const auto blank = [&](std::size_t at) {
    return at < source.size() && kBlanks.find(source[at]) != std::string_view::npos;
  };
  for (std::size_t at = source.find("{%"); at != std::string_view::npos; at = source.find("{%", at + 1)) {
    std::size_t i = at + 2;
    if (i < source.size() && source[i] == '-') ++i;
    if (!blank(i)) continue;
    while (blank(i)) ++i;
    if (!source.substr(i).starts_with(kWord)) continue;
    i += kWord.size();
    if (!blank(i)) continue;
    while (blank(i)) ++i;
    if (i < source.size() && source[i] == '-') ++i;
    if (source.substr(i).starts_with("%}")) return true;
  }
  return false;
}

std::string ChatTemplate::render(const nlohmann::ordered_json& messages, bool add_generation_prompt,
                                 const std::map<std::string, std::string, std::less<>>& roles) const {
  return render(messages, nullptr, add_generation_prompt, roles, nullptr);
}

std::string ChatTemplate::render(const nlohmann::ordered_json& messages, const nlohmann::ordered_json& tools,
                                 bool add_generation_prompt,
                                 const std::map<std::string, std::string, std::less<>>& roles,
                                 std::vector<TextSpan>* marked) const {
  TemplateBudget budget;
  TemplateDict variables;
  for (const auto& [name, token] : roles) variables.emplace_back(name, TemplateValue::paid(token));
  set_item(variables, "messages", messages_value(messages, budget), budget);
  set_item(variables, "add_generation_prompt", TemplateValue::Storage(add_generation_prompt), budget);
  set_item(variables, "tools", tools.is_array() ? TemplateValue::from_json(tools, budget) : TemplateValue::none(),
           budget);
  set_item(variables, "documents", TemplateValue::none(), budget);
  return render_template(block_, std::move(variables), budget, marked);
}

}  // namespace automodel::tokenizer
