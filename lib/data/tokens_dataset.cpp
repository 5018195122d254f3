#include "data/tokens_dataset.h"

#include <algorithm>
#include <limits>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "base/bytes.h"
#include "base/error.h"
#include "data/bad_rows.h"
#include "data/class_rows.h"
#include "data/mapped_file.h"
#include "data/source_files.h"
#include "data/token_row.h"

namespace automodel::data {
namespace {

constexpr std::int64_t kNoLimit = std::numeric_limits<std::uint32_t>::max();

/// A row's position, and its length without trailing padding.
struct RowPlace {
  std::uint64_t offset;
  std::uint32_t file;
  std::uint32_t length;
};

struct Files {
  std::vector<std::filesystem::path> paths;
  std::vector<MappedFile> maps;
};

std::string_view line_at(std::string_view text, std::size_t offset) {
  return text.substr(offset, text.find('\n', offset) - offset);
}

/// Number of tokens up to the last one that is not padding.
std::size_t trimmed_length(const TokenRow& row) {
  std::size_t length = row.input_ids.size();
  while (!row.attention_mask.empty() && length > 0 && row.attention_mask[length - 1] == 0) --length;
  return length;
}

/// What position t must predict; ignored if either side is padding, since what a position that attends to nothing
/// predicts depends on the attention implementation.
std::int32_t target_of(const TokenRow& row, std::size_t t) {
  if (!row.attention_mask.empty() && (row.attention_mask[t] == 0 || row.attention_mask[t + 1] == 0))
    return kIgnoredLabel;
  return row.labels.empty() ? row.input_ids[t + 1] : row.labels[t + 1];
}

/// A row's format: that of a classifier or of a language model.
struct RowFormat {
  int classes = 0;
  int pad_token = 0;
  std::string_view example() const {
    return classes > 0 ? "a row is {\"input_ids\": [...], \"label\": 0}"
                       : "a row is {\"input_ids\": [...], \"labels\": [...]}";
  }
};

class TokensDataset final : public Dataset {
 public:
  TokensDataset(Files files, std::vector<RowPlace> rows, RowFormat format, Padding padding, std::string summary)
      : files_(std::move(files)),
        rows_(std::move(rows)),
        format_(format),
        padding_(padding),
        summary_(std::move(summary)) {}

  std::int64_t size() const override { return static_cast<std::int64_t>(rows_.size()); }
  std::int64_t length(std::int64_t index) const override { return rows_[static_cast<std::size_t>(index)].length; }
  Padding padding() const override { return padding_; }
  std::string summary() const override { return summary_; }

  void read(std::int64_t index, Sample& out) const override {
    const RowPlace& place = rows_[static_cast<std::size_t>(index)];
    TokenRow row;
    const auto problem = parse_token_row(line_at(files_.maps[place.file].text(), place.offset), row, format_.classes);
    const std::size_t length = problem ? 0 : trimmed_length(row);
    if (length != place.length)
      throw Error(ExitCode::kEnvironment,
                  Diagnostic{"bad-row"}
                      .says("'{}' has changed since it was opened", files_.paths[place.file].native())
                      .hint("data files must stay as they are while a run reads them")
                      .at({files_.paths[place.file].native(), 0, 0}));
    out.positions.clear();
    out.labels.clear();
    for (std::size_t t = 0; t + 1 < length; ++t) out.labels.push_back(target_of(row, t));
    out.labels.push_back(kIgnoredLabel);
    row.attention_mask.resize(row.attention_mask.empty() ? 0 : length);
    out.segments.clear();
    if (std::find(row.attention_mask.begin(), row.attention_mask.end(), 0) != row.attention_mask.end())
      out.segments = std::move(row.attention_mask);
    row.input_ids.resize(length);
    out.input_ids = std::move(row.input_ids);
    if (row.label) label_last_token(out, *row.label, format_.pad_token);
  }

 private:
  Files files_;
  std::vector<RowPlace> rows_;
  RowFormat format_;
  Padding padding_;
  std::string summary_;
};

/// Parses every row once; records where rows are, and the first problems.
class Indexer {
 public:
  Indexer(std::int64_t max_length, std::string length_rule, std::optional<std::int64_t> vocab_size, std::string key,
          RowFormat format, BadRows& bad)
      : max_length_(max_length),
        length_rule_(std::move(length_rule)),
        vocab_size_(vocab_size.value_or(std::numeric_limits<std::int32_t>::max())),
        key_(std::move(key)),
        format_(format),
        bad_(bad) {}

  void add_file(const std::filesystem::path& path, std::string_view text, std::uint32_t file) {
    const bool has_bom = text.starts_with("\xEF\xBB\xBF");
    int line_number = 0;
    for (std::size_t offset = has_bom ? 3 : 0; offset < text.size();) {
      const std::string_view line = line_at(text, offset);
      ++line_number;
      if (line.find_first_not_of(" \t\r") != std::string_view::npos) add_row(path, line, line_number, file, offset);
      offset += line.size() + 1;
    }
  }

  std::int64_t tokens() const { return tokens_; }
  std::int64_t labels() const { return labels_; }
  std::vector<RowPlace> take_rows() { return std::move(rows_); }

 private:
  void add_row(const std::filesystem::path& path, std::string_view line, int line_number, std::uint32_t file,
               std::size_t offset) {
    Diagnostic problem{"bad-row"};
    if (check_row(line, problem)) {
      const std::size_t length = trimmed_length(row_);
      rows_.push_back({offset, file, static_cast<std::uint32_t>(length)});
      tokens_ += static_cast<std::int64_t>(length);
      if (row_.label) ++labels_;
      for (std::size_t t = 0; !row_.label && t + 1 < length; ++t)
        labels_ += target_of(row_, t) == kIgnoredLabel ? 0 : 1;
      return;
    }
    problem.where.file = path.native();
    problem.where.line = line_number;
    problem.key = key_;
    bad_.add(std::move(problem));
  }

  bool check_row(std::string_view line, Diagnostic& problem) {
    if (const auto bad = parse_token_row(line, row_, format_.classes)) {
      problem.says(bad->reason).hint(bad->help.empty() ? std::string(format_.example()) : bad->help);
      problem.where.column = static_cast<int>(std::min<std::size_t>(bad->column, std::numeric_limits<int>::max()));
      return false;
    }
    problem.where.column = 1;
    const auto length = static_cast<std::int64_t>(trimmed_length(row_));
    if (length == 0) {
      problem.id = "bad-row";
      problem.message = "attention_mask is 0 everywhere";
      problem.help = "leave the row out";
      return false;
    }
    if (length > max_length_) {
      problem.id = "sequence-too-long";
      problem.message = fmt::format("the row has {} tokens", length);
      problem.help = length_rule_;
      return false;
    }
    return check_range("input_ids", row_.input_ids, problem) && check_range("labels", row_.labels, problem);
  }

  bool check_range(std::string_view name, const std::vector<std::int32_t>& ids, Diagnostic& problem) const {
    const auto bad = std::find_if(ids.begin(), ids.end(), [&](std::int32_t id) { return id >= vocab_size_; });
    if (bad == ids.end()) return true;
    problem.id = "token-out-of-range";
    problem.message =
        fmt::format("{}[{}] is {}, the model's vocabulary is {}", name, bad - ids.begin(), *bad, vocab_size_);
    problem.help = fmt::format("ids must lie between 0 and {}", vocab_size_ - 1);
    return false;
  }

  std::int64_t max_length_;
  std::string length_rule_;
  std::int64_t vocab_size_;
  std::string key_;
  RowFormat format_;
  BadRows& bad_;
  TokenRow row_;
  std::vector<RowPlace> rows_;
  std::int64_t tokens_ = 0;
  std::int64_t labels_ = 0;
};

Files map_files(const SourceFiles& sources, const std::string& key, Diagnostics& problems) {
  Files files;
  for (const auto& file : sources.files) {
    try {
      files.maps.emplace_back(file.path);
      files.paths.push_back(file.path);
    } catch (const std::system_error& error) {
      problems.add("missing-file", key)
          .says("'{}' cannot be read: {}", file.path.native(), error.code().message())
          .hint("check the file and its permissions");
    }
  }
  return files;
}

}  // namespace

std::unique_ptr<Dataset> open_tokens(const config::TokensDatasetConfig& config, const DatasetContext& context,
                                     Diagnostics& problems) {
  const std::size_t before = problems.size();
  const std::string key = context.key + ".path";
  if (context.vocab_size && config.pad_token_id() >= *context.vocab_size)
    problems.add("token-out-of-range", context.key + ".pad_token_id")
        .says("pad_token_id {} is not in the model's vocabulary of {}", config.pad_token_id(), *context.vocab_size)
        .hint("pad_token_id must be at most {}", *context.vocab_size - 1);
  const std::int64_t model_limit = context.max_length.value_or(kNoLimit);
  const std::int64_t own_limit = config.seq_length() ? *config.seq_length() : kNoLimit;
  const std::string rule = own_limit < model_limit ? fmt::format("{}.seq_length allows {}", context.key, own_limit)
                                                   : fmt::format("the model accepts at most {}", model_limit);
  const std::size_t before_files = problems.size();
  const auto sources = find_files(config.paths(), Wanted::kJsonLines, context.recipe_folder, key, problems);
  Files files = map_files(sources, key, problems);
  const bool found_all = problems.size() == before_files;
  BadRows bad(config.max_bad_rows(), key, context.quiet);
  const RowFormat format{context.classes, context.pad_token.value_or(config.pad_token_id())};
  Indexer indexer(std::min(own_limit, model_limit), rule, context.vocab_size, key, format, bad);
  for (std::size_t i = 0; i < files.maps.size(); ++i)
    indexer.add_file(files.paths[i], files.maps[i].text(), static_cast<std::uint32_t>(i));
  if (bad.finish(problems) && found_all && indexer.labels() == 0)
    problems.add("empty-data", key)
        .says(indexer.tokens() == 0 ? "there is no row" : "no row has a label that counts")
        .hint("{}{}", format.example(), format.classes > 0 ? "" : "; the first token's label is never used");
  if (problems.size() > before) return nullptr;
  auto rows = indexer.take_rows();
  const std::string summary = fmt::format("tokens: {} rows, {} tokens, {} labels{}", rows.size(),
                                          format_count(static_cast<double>(indexer.tokens())),
                                          format_count(static_cast<double>(indexer.labels())), bad.summary());
  return std::make_unique<TokensDataset>(std::move(files), std::move(rows), format,
                                         Padding{config.pad_token_id(), config.pad_to_multiple_of(), 0}, summary);
}

}  // namespace automodel::data
