// Conversations as rows: the template's text, and which of its tokens count in the loss.
#pragma once

#include <memory>
#include <optional>
#include <stdexcept>
#include <string>

#include <nlohmann/json.hpp>

#include "data/row_format.h"
#include "tokenizer/chat_template.h"

namespace automodel::data {

/// Why a row cannot be used.
class RowRefused : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

struct ChatOptions {
  RowLengths lengths = {};
  bool answer_only = true;
  bool mask_reasoning = false;  ///< reasoning_content of the assistant does not count
  bool last_turn = false;       ///< only the last run of counting tokens does, found before reasoning is taken out
  bool last_labels = false;     ///< the same on the finished labels
};

/// A tokenizer's templates, or the one that a section gives instead.
class ChatFormat {
 public:
  /// `source` is the section's chat_template: a file, a JSON file with "chat_template", or a template's text. Null
  /// after `missing-file` or `bad-template`; null without a problem where there is no template at all.
  static std::unique_ptr<const ChatFormat> open(std::shared_ptr<const RowTokenizer> tokenizer,
                                                const std::optional<std::string>& source, const DatasetContext& context,
                                                Diagnostics& problems);

  /// `tools` is a list, or null. Throws RowRefused. Where the template marks what the model says, those tokens count;
  /// else those by which each turn of the assistant makes the text longer, its heading with them.
  BuiltRow build(const nlohmann::ordered_json& messages, const nlohmann::ordered_json& tools,
                 const ChatOptions& options) const;
  /// The tokens of a rendered conversation, neither cut nor filled.
  std::int64_t count(const nlohmann::ordered_json& messages, const nlohmann::ordered_json& tools) const;
  const std::string& text() const { return text_; }

 private:
  class Conversation;
  std::shared_ptr<const RowTokenizer> tokenizer_;
  std::unique_ptr<const tokenizer::ChatTemplate> plain_;
  std::unique_ptr<const tokenizer::ChatTemplate> with_tools_;  ///< null: the same
  bool marks_ = false;
  std::string text_;  ///< of both, for the cache's name
};

}  // namespace automodel::data
