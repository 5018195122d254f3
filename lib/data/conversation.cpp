#include "data/conversation.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "data/chat_format.h"
#include "data/json_line.h"
#include "data/messages.h"

namespace automodel::data {
namespace {

using nlohmann::ordered_json;

std::optional<RowProblem> check_messages(const ordered_json& messages, const std::string& key) {
  if (!messages.is_array() || messages.empty())
    return RowProblem{1, fmt::format("'{}' is not a list of messages", key)};
  bool answered = false;
  for (std::size_t i = 0; i < messages.size(); ++i) {
    const auto& message = messages[i];
    if (!message.is_object() || !message.contains("role") || !message["role"].is_string())
      return RowProblem{1, fmt::format("{}[{}] has no role", key, i)};
    if (!message.contains("content")) return RowProblem{1, fmt::format("{}[{}] has no content", key, i)};
    answered = answered || message["role"] == "assistant";
  }
  if (!answered) return RowProblem{1, fmt::format("'{}' has no message of the assistant to learn", key)};
  return std::nullopt;
}

}  // namespace

/// The messages of a row, and renderings of their prefixes.
class ConversationEncoder::Row {
 public:
  /// Throws RowRefused.
  Row(const ConversationEncoder& owner, ordered_json messages, ordered_json tools)
      : owner_(owner), messages_(std::move(messages)), tools_(std::move(tools)) {
    for (std::size_t i = 0; i < size(); ++i) check_weight(messages_[i], i);
  }

  std::size_t size() const { return messages_.size(); }
  bool assistant(std::size_t i) const { return messages_[i]["role"] == "assistant"; }
  /// The ids of all messages. Throws RowRefused.
  std::vector<std::int32_t> ids() {
    const std::string whole = text(messages_, false);
    check_calls(messages_, whole, [&](const ordered_json& others) { return text(others, false); });
    return owner_.encode_text(whole);
  }
  /// Those of the first `count` messages.
  std::vector<std::int32_t> ids(std::size_t count, bool prompt) {
    ordered_json first = ordered_json::array();
    for (std::size_t i = 0; i < count; ++i) first.push_back(messages_[i]);
    return owner_.encode_text(text(first, prompt));
  }

 private:
  std::string text(const ordered_json& messages, bool prompt) {
    rendered_.add(messages.size());
    return owner_.chat_->render(messages, tools_, prompt, owner_.tokenizer_.folder()->roles(), nullptr);
  }

  const ConversationEncoder& owner_;
  ordered_json messages_, tools_;
  RenderedMessages rendered_;
};

std::vector<std::int32_t> ConversationEncoder::encode_text(const std::string& text) const {
  std::vector<std::int32_t> out;
  tokenizer_.encode(text, out);
  return out;
}

void ConversationEncoder::encode_plain(const std::string& prompt, const std::string& response) {
  ids_.clear();
  if (tokenizer_.folder() != nullptr) ids_ = tokenizer_.folder()->surround().before;
  const std::size_t begin = ids_.size();
  tokenizer_.encode(prompt + response, ids_);
  if (tokenizer_.eos()) ids_.push_back(*tokenizer_.eos());
  const std::size_t answer = std::min(ids_.size(), begin + encode_text(prompt).size());
  counts_.assign(ids_.size(), true);
  std::fill_n(counts_.begin(), answer, false);
}

std::optional<RowProblem> ConversationEncoder::encode(std::string_view line, Sample& out) {
  ordered_json row;
  if (auto problem = parse_line(line, row)) return problem;
  ordered_json messages;
  if (row.contains(options_.messages_key)) {
    messages = row[options_.messages_key];
    if (auto problem = check_messages(messages, options_.messages_key)) return problem;
    if (chat_ == nullptr)
      return RowProblem{1, "conversations need a chat template, and the tokenizer has none",
                        "chat_template: FILE (Jinja), beside a tokenizer with special tokens"};
  } else {
    for (const auto& key : {options_.prompt_key, options_.response_key})
      if (!row.contains(key) || !row[key].is_string())
        return RowProblem{1, fmt::format("the row has neither '{}' nor a string '{}'", options_.messages_key, key)};
    messages = {{{"role", "user"}, {"content", row[options_.prompt_key]}},
                {{"role", "assistant"}, {"content", row[options_.response_key]}}};
  }
  if (chat_ == nullptr) {
    encode_plain(row[options_.prompt_key].get<std::string>(), row[options_.response_key].get<std::string>());
  } else {
    try {
      Row turns(*this, std::move(messages), tools_of(row));
      ids_ = turns.ids();
      counts_.assign(ids_.size(), false);
      for (std::size_t i = 0; i < turns.size(); ++i) {
        if (!turns.assistant(i) || !options_.mask_prompt) continue;
        const std::size_t end = i + 1 == turns.size() ? ids_.size() : turns.ids(i + 1, false).size();
        for (std::size_t t = turns.ids(i, true).size(); t < std::min(end, ids_.size()); ++t) counts_[t] = true;
      }
    } catch (const RowRefused& refused) {
      return RowProblem{1, refused.what()};
    } catch (const tokenizer::TemplateError& error) {
      return RowProblem{1,
                        fmt::format("the chat template refuses the row (its line {}): {}", error.line, error.what())};
    }
  }
  if (!options_.mask_prompt) counts_.assign(ids_.size(), true);
  if (ids_.empty()) return RowProblem{1, "the row has no token"};
  out.input_ids = ids_;
  out.segments.clear();
  out.positions.clear();
  out.labels.assign(ids_.size(), kIgnoredLabel);
  for (std::size_t t = 0; t + 1 < ids_.size(); ++t)
    if (counts_[t + 1]) out.labels[t] = ids_[t + 1];
  return std::nullopt;
}

}  // namespace automodel::data
