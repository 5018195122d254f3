// Instructions: table columns mapped to context, question and answer.
#include <algorithm>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "base/find_file.h"
#include "base/spelling.h"
#include "data/builder.h"

namespace automodel::data {
namespace {

using nlohmann::ordered_json;

class ColumnMappedBuilder final : public RowBuilder {
 public:
  ColumnMappedBuilder(const config::ColumnMappedDatasetConfig& config, BuilderParts& parts, RowLengths lengths,
                      std::unique_ptr<const ChatFormat> chat, bool streamed)
      : RowBuilder(parts),
        mapping_(config.column_mapping()),
        answer_only_(config.answer_only_loss_mask()),
        lengths_(lengths),
        chat_(std::move(chat)),
        streamed_(streamed) {}

  /// A row without labels is replaced by the next row that has some; a stream leaves it out.
  std::optional<BuiltRow> build(std::int64_t index) override {
    if (streamed_) {
      auto out = build_one(index);
      return out.has_labels() ? std::optional(std::move(out)) : std::nullopt;
    }
    for (std::int64_t tried = 0; tried < table().size(); ++tried) {
      BuiltRow out = build_one((index + tried) % table().size());
      if (out.has_labels()) return out;
    }
    throw RowRefused("neither this row nor any other has a label");
  }

 private:
  struct Cell {
    bool known = false;  ///< whether the table has the column
    const ordered_json* value = nullptr;
  };

  Cell cell(const ordered_json& row, const std::string& part) {
    const auto column = mapping_.find(part);
    if (column == mapping_.end()) return {};
    const auto found = row.find(column->second);
    if (found != row.end()) return {true, found->is_null() ? nullptr : &*found};
    if (!columns_) columns_ = read_columns();
    return {columns_->contains(column->second), nullptr};
  }

  /// The columns of all rows. Called only if a row lacks one, to see whether other rows have it.
  std::set<std::string> read_columns() const {
    std::set<std::string> out;
    ordered_json row;
    for (std::int64_t i = 0; i < table().size(); ++i) {
      try {
        table().read(i, row);
      } catch (const rows::RowError&) {
        continue;  // a fault of that row, not of this one
      }
      for (const auto& [name, value] : row.items()) out.insert(name);
    }
    return out;
  }

  static std::optional<std::string> text_of(const Cell& cell, const char* part) {
    if (cell.value == nullptr) return std::nullopt;
    if (!cell.value->is_string())
      throw RowRefused(fmt::format("the column for {} is not text but {}", part, cell.value->type_name()));
    return cell.value->get<std::string>();
  }

  BuiltRow build_one(std::int64_t index) {
    const auto row = read(index);
    const Cell answer_cell = cell(row, "answer"), context_cell = cell(row, "context"),
               question_cell = cell(row, "question");
    if (!answer_cell.known || (!context_cell.known && !question_cell.known)) {
      const auto there = columns_.value_or(std::set<std::string>());
      throw RowRefused(fmt::format("no row has the column{} of column_mapping; the columns are {}",
                                   answer_cell.known ? "s for context and question" : " for the answer",
                                   join({there.begin(), there.end()})));
    }
    const auto answer = text_of(answer_cell, "the answer");
    if (!answer) throw RowRefused("the column for the answer is null");
    const auto context = text_of(context_cell, "the context"), question = text_of(question_cell, "the question");
    if (chat_)
      return chat_->build({{{"role", "system"}, {"content", context.value_or("")}},
                           {{"role", "user"}, {"content", question.value_or("")}},
                           {{"role", "assistant"}, {"content", *answer}}},
                          nullptr, {.lengths = lengths_, .answer_only = answer_only_});
    std::string prompt;
    for (const auto* part : {&context, &question})
      if (*part) prompt += **part + " ";
    if (prompt.size() < 2) throw RowRefused("context and question are empty");
    return format_prompt(tokenizer(), prompt, *answer, lengths_, answer_only_);
  }

  std::map<std::string, std::string> mapping_;
  bool answer_only_;
  RowLengths lengths_;
  std::unique_ptr<const ChatFormat> chat_;
  bool streamed_;
  std::optional<std::set<std::string>> columns_;
};

void check_mapping(const std::map<std::string, std::string>& mapping, const std::string& key, Diagnostics& problems) {
  constexpr std::array<std::string_view, 3> kParts = {"context", "question", "answer"};
  const auto refuse = [&](std::string message, std::string help) {
    problems.add("bad-value", key).says(std::move(message)).hint(std::move(help));
  };
  for (const auto& [part, column] : mapping)
    if (std::find(kParts.begin(), kParts.end(), part) == kParts.end())
      refuse(fmt::format("column_mapping knows no '{}'", part), suggestion(part, {kParts.begin(), kParts.end()}));
  if (!mapping.contains("answer")) refuse("column_mapping has no answer", "answer: the column with what is learned");
  if (!mapping.contains("context") && !mapping.contains("question"))
    refuse("column_mapping has neither context nor question", "name a column for one of them, or for both");
}

bool load_columns(const config::ColumnMappedDatasetConfig& config, BuilderParts& parts, Diagnostics& problems) {
  const auto& paths = config.path_or_dataset_id().paths;
  std::error_code error;
  const auto local = paths.size() == 1 ? find_beside(paths[0], parts.context.recipe_folder) : std::nullopt;
  const bool repository = paths.size() == 1 && (!local || std::filesystem::is_directory(*local, error));
  if (repository)
    return load_repository(parts, paths[0], "path_or_dataset_id", config.split().value_or("train"), config.name(), {},
                           problems);
  return load_named_files(parts, paths, "path_or_dataset_id", config.split(), problems);
}

std::unique_ptr<Builder> make_builder(const config::ColumnMappedDatasetConfig& config, BuilderParts& parts,
                                      bool streamed, Diagnostics& problems) {
  const std::size_t before = problems.size();
  const std::string& key = parts.context.key;
  check_mapping(config.column_mapping(), key + ".column_mapping", problems);
  const RowLengths lengths = row_lengths(config, key, problems);
  std::unique_ptr<const ChatFormat> chat;
  if (config.use_hf_chat_template())
    chat = ChatFormat::open(parts.tokenizer, config.chat_template(), parts.context, problems);
  if (!load_columns(config, parts, problems) || problems.size() > before) return nullptr;
  if (chat) parts.extra = chat->text();
  if (const auto& limit = config.limit_dataset_samples()) {
    const std::int64_t size = parts.rows.rows->size();
    if (*limit > size) {
      problems.add("bad-value", key + ".limit_dataset_samples")
          .says("limit_dataset_samples {} is more than the {} rows", *limit, size)
          .hint("at most {}", size);
      return nullptr;
    }
    keep_first(parts, *limit);
  }
  return std::make_unique<ColumnMappedBuilder>(config, parts, lengths, std::move(chat), streamed);
}

}  // namespace

std::unique_ptr<Builder> make_column_mapped_builder(const config::ColumnMappedDatasetConfig& config,
                                                    BuilderParts& parts, Diagnostics& problems) {
  return make_builder(config, parts, false, problems);
}

std::unique_ptr<Builder> make_streamed_columns_builder(const config::StreamedColumnsDatasetConfig& config,
                                                       BuilderParts& parts, Diagnostics& problems) {
  return make_builder(config, parts, true, problems);
}

}  // namespace automodel::data
