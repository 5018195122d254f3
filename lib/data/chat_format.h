// Conversations as rows: the rendered text, and which of its tokens count in the loss.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>

#include <nlohmann/json.hpp>

#include "data/row_format.h"
#include "tokenizer/chat_template.h"

namespace automodel::data {

/// Thrown for a row that cannot be used; what() says why.
class RowRefused : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// How many messages the renderings of one row hold: a conversation is rendered again for each turn that counts, so
/// their number grows with the square of its turns. 1,400 messages of two roles in turn reach the limit, in 3 to 5 s.
class RenderedMessages {
 public:
  /// For a rendering of so many. Throws RowRefused.
  void add(std::size_t messages);

 private:
  static constexpr std::size_t kMost = 1'000'000;
  std::size_t count_ = 0;
};

struct ChatOptions {
  RowLengths lengths = {};
  bool answer_only = true;
  bool mask_reasoning = false;  ///< the assistant's reasoning_content does not count
  bool last_turn = false;       ///< only the last run of counted tokens does, found before reasoning is masked
  bool last_labels = false;     ///< the same, applied to the finished labels
};

/// The tokenizer's templates, or the one that a section gives instead.
class ChatFormat {
 public:
  /// `source` is the section's chat_template: a file, a JSON file with "chat_template", or the template itself. Null
  /// after `missing-file` or `bad-template`; null without a problem if there is no template at all.
  static std::unique_ptr<const ChatFormat> open(std::shared_ptr<const RowTokenizer> tokenizer,
                                                const std::optional<std::string>& source, const DatasetContext& context,
                                                Diagnostics& problems);

  /// `tools` is a list, or null. Throws RowRefused. If the template marks what the model generates, those tokens count;
  /// otherwise the tokens that each assistant turn adds to the rendered text, including the turn's header.
  BuiltRow build(const nlohmann::ordered_json& messages, const nlohmann::ordered_json& tools,
                 const ChatOptions& options) const;
  /// Tokens of a rendered conversation, neither truncated nor padded.
  std::int64_t count(const nlohmann::ordered_json& messages, const nlohmann::ordered_json& tools) const;
  /// The text of a conversation. Throws RowRefused.
  std::string render(const nlohmann::ordered_json& messages, const nlohmann::ordered_json& tools) const;
  const std::string& text() const { return text_; }

 private:
  class Conversation;
  std::shared_ptr<const RowTokenizer> tokenizer_;
  std::unique_ptr<const tokenizer::ChatTemplate> plain_;
  std::unique_ptr<const tokenizer::ChatTemplate> with_tools_;  ///< null: same as plain_
  bool marks_ = false;
  std::string text_;  ///< source of both, for the name of the cache file
};

}  // namespace automodel::data
