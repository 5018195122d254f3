// Conversations as the text that a model was trained on.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "base/diagnostic.h"
#include "tokenizer/template_tree.h"

namespace automodel::tokenizer {

/// A Jinja chat template, rendered as in transformers; supports the subset of Jinja that such templates use
/// (template_tree.h).
class ChatTemplate {
 public:
  /// `file` is for messages. Null after adding a `bad-template` problem with its line.
  static std::unique_ptr<const ChatTemplate> parse(std::string_view source, const std::string& file,
                                                   Diagnostics& problems);

  /// Whether the template marks what the model generates ({% generation %}).
  static bool marks_generation(std::string_view source);

  /// The text of `messages` (a JSON list of {"role", "content"}); `tools` is passed on if it is a list. Null members of
  /// messages are dropped. `marked`, if not null, receives the spans that the template marks.
  std::string render(const nlohmann::ordered_json& messages, const nlohmann::ordered_json& tools,
                     bool add_generation_prompt, const std::map<std::string, std::string, std::less<>>& roles,
                     std::vector<TextSpan>* marked) const;

  /// The same without tools. `roles` are the tokenizer's special tokens by name ("bos_token"). Throws TemplateError,
  /// including when the template raises an exception.
  std::string render(const nlohmann::ordered_json& messages, bool add_generation_prompt,
                     const std::map<std::string, std::string, std::less<>>& roles) const;

 private:
  TemplateBlock block_;
};

}  // namespace automodel::tokenizer
