// One line of instructions or conversation as tokens and labels.
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

/// Encodes lines; one a thread. A row {"prompt", "response"} is a conversation of one user and one assistant turn; a
/// row
/// {"messages": [{"role", "content"}, ...]} is one as it stands.
///
/// With a chat template the ids are those of the rendered conversation. The labels of an assistant turn begin where the
/// text up to it ends, with the template's opening of the turn (add_generation_prompt), and end where the text with it
/// ends, so that the end of the turn is learned and what opens it is not. Without one, prompt and response are joined
/// as they are, behind the tokenizer's own begin of text, and an end of text follows.
class ConversationEncoder {
 public:
  /// `chat` may be null; both must outlive the encoder.
  ConversationEncoder(const Tokenizer& tokenizer, const tokenizer::ChatTemplate* chat, ConversationOptions options)
      : tokenizer_(tokenizer), chat_(chat), options_(std::move(options)) {}

  /// Fills ids and (shifted) labels of `out`.
  std::optional<RowProblem> encode(std::string_view line, Sample& out);

 private:
  class Row;
  std::vector<std::int32_t> encode_text(const std::string& text) const;
  void encode_plain(const std::string& prompt, const std::string& response);

  const Tokenizer& tokenizer_;
  const tokenizer::ChatTemplate* chat_;
  ConversationOptions options_;
  std::vector<std::int32_t> ids_;
  std::vector<bool> counts_;  ///< whether a token is a label
};

}  // namespace automodel::data
