// Chat templates by name, for tokenizers that have none.
#pragma once

#include <optional>
#include <span>
#include <string_view>

namespace automodel::tokenizer {

struct NamedTemplate {
  std::string_view name;
  std::string_view end_of_turn;  ///< the token that ends each turn
  std::string_view text;         ///< Jinja; what the assistant says is marked with {% generation %}
};

/// chatml (OpenAI's ChatML, as Qwen and many others use it) and llama3 (Llama 3's header format).
std::span<const NamedTemplate> named_templates();
/// Null for another name.
const NamedTemplate* find_named_template(std::string_view name);

}  // namespace automodel::tokenizer
