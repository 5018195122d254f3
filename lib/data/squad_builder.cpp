// Questions about a passage, with their answers.
#include <utility>

#include <fmt/format.h>

#include "data/builder.h"

namespace automodel::data {
namespace {

/// Strips leading and trailing white space, as Python's strip() does for ASCII.
std::string stripped(const std::string& text) {
  constexpr std::string_view kBlanks = " \t\n\r\f\v\x1c\x1d\x1e\x1f";
  const std::size_t begin = text.find_first_not_of(kBlanks);
  if (begin == std::string::npos) return "";
  return text.substr(begin, text.find_last_not_of(kBlanks) + 1 - begin);
}

class SquadBuilder final : public RowBuilder {
 public:
  SquadBuilder(BuilderParts& parts, RowLengths lengths, std::unique_ptr<const ChatFormat> chat)
      : RowBuilder(parts), lengths_(lengths), chat_(std::move(chat)) {}

  std::optional<BuiltRow> build(std::int64_t index) override {
    const auto row = read(index);
    const std::string prompt =
        fmt::format("Context: {} Question: {} Answer: ", text_cell(row, "context"), text_cell(row, "question"));
    const auto answers = row.find("answers");
    if (answers == row.end() || !answers->is_object()) throw RowRefused("column 'answers' is not {\"text\": [...]}");
    const auto texts = answers->find("text");
    if (texts == answers->end() || !texts->is_array()) throw RowRefused("column 'answers' has no list 'text'");
    if (!texts->empty() && !texts->front().is_string()) throw RowRefused("an answer is not text");
    const std::string answer = texts->empty() ? "" : stripped(texts->front().get<std::string>());
    if (!chat_) return format_prompt(tokenizer(), prompt, answer, lengths_, true);
    if (texts->empty()) throw RowRefused("the question has no answer to learn");
    return chat_->build({{{"role", "user"}, {"content", prompt}}, {{"role", "assistant"}, {"content", answer}}},
                        nullptr, {.lengths = lengths_});
  }

 private:
  RowLengths lengths_;
  std::unique_ptr<const ChatFormat> chat_;
};

}  // namespace

std::unique_ptr<Builder> make_squad_builder(const config::SquadDatasetConfig& config, BuilderParts& parts,
                                            Diagnostics& problems) {
  const std::size_t before = problems.size();
  const RowLengths lengths = row_lengths(config, parts.context.key, problems);
  auto chat = ChatFormat::open(parts.tokenizer, config.chat_template(), parts.context, problems);
  if (!load_repository(parts, config.dataset_name(), "dataset_name",
                       limited(config.split().value_or("train"), config.limit_dataset_samples()), {}, {}, problems) ||
      problems.size() > before)
    return nullptr;
  if (chat) parts.extra = chat->text();
  return std::make_unique<SquadBuilder>(parts, lengths, std::move(chat));
}

}  // namespace automodel::data
