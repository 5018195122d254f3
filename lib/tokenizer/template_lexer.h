// The tokens of a template.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace automodel::tokenizer {

struct TemplateToken {
  enum class Kind {
    kText,
    kOutputBegin,
    kOutputEnd,
    kBlockBegin,
    kBlockEnd,
    kName,
    kString,
    kInteger,
    kFloat,
    kSign,
    kEnd
  };
  Kind kind;
  std::string text;
  int line;
};

/// Splits a template into text and the tokens of its tags; white space control around tags is already applied. Ends
/// with kEnd.
std::vector<TemplateToken> lex_template(std::string_view source);

}  // namespace automodel::tokenizer
