// One line of instructions or conversation, as tokens and labels.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "data/dataset.h"
#include "data/token_row.h"
#include "data/tokenizer.h"
#include "tokenizer/chat_template.h"

namespace automodel::data {

struct ConversationOptions {
  std::string prompt_key = "prompt";
  std::string response_key = "response";
  std::string messages_key = "messages";
  bool mask_prompt = true;  ///< only answers are labels
};

/// Encodes lines; one encoder per thread. A row {"prompt", "response"} is a conversation with one user and one
/// assistant turn; a row {"messages": [{"role", "content"}, ...]} is used as it is.
///
/// With a chat template the ids are those of the rendered conversation. An assistant turn's labels start where the
/// rendering of everything before it ends, including the template's opening of the turn (add_generation_prompt), and
/// stop where the rendering with the turn ends; so the model learns to end the turn but not to open it. Without a
/// template, prompt and response are concatenated, preceded by the tokenizer's BOS and followed by EOS.
class ConversationEncoder {
 public:
  /// `chat` may be null; `tokenizer` and `chat` must outlive the encoder.
  ConversationEncoder(const Tokenizer& tokenizer, const tokenizer::ChatTemplate* chat, ConversationOptions options)
      : tokenizer_(tokenizer), chat_(chat), options_(std::move(options)) {}

  /// Fills the ids and (shifted) labels of `out`.
  std::optional<RowProblem> encode(std::string_view line, Sample& out);

 private:
  class Row;
  std::vector<std::int32_t> encode_text(const std::string& text) const;
  void encode_plain(const std::string& prompt, const std::string& response);

  const Tokenizer& tokenizer_;
  const tokenizer::ChatTemplate* chat_;
  ConversationOptions options_;
  std::vector<std::int32_t> ids_;
  std::vector<bool> counts_;  ///< whether each token is a label
};

}  // namespace automodel::data
