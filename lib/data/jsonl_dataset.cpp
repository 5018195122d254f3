#include "data/jsonl_dataset.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <system_error>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/bytes.h"
#include "base/file_text.h"
#include "base/spelling.h"
#include "data/bad_rows.h"
#include "data/class_rows.h"
#include "data/content_hash.h"
#include "data/conversation.h"
#include "data/source_files.h"
#include "data/token_store.h"
#include "data/turn_ends.h"
#include "rows/bounded_json.h"
#include "tokenizer/named_templates.h"

namespace automodel::data {
namespace {

namespace fs = std::filesystem;

class JsonlDataset final : public Dataset {
 public:
  JsonlDataset(TokenStore store, Padding padding, std::string summary)
      : store_(std::move(store)), padding_(padding), summary_(std::move(summary)) {}
  std::int64_t size() const override { return store_.rows(); }
  std::int64_t length(std::int64_t index) const override { return store_.length(index); }
  Padding padding() const override { return padding_; }
  std::string summary() const override { return summary_; }
  void read(std::int64_t index, Sample& out) const override {
    const auto ids = store_.ids(index), labels = store_.labels(index);
    out.input_ids.assign(ids.begin(), ids.end());
    out.labels.assign(labels.begin(), labels.end());
    out.segments.clear();
    out.positions.clear();
  }

 private:
  TokenStore store_;
  Padding padding_;
  std::string summary_;
};

/// Opens everything that the section names, then encodes.
class Opening {
 public:
  Opening(const config::JsonlDatasetConfig& config, const DatasetContext& context, Diagnostics& problems)
      : config_(config), context_(context), problems_(problems) {}

  std::unique_ptr<Dataset> run() {
    const std::size_t before = problems_.size();
    read_columns();
    sources_ =
        find_files(config_.paths(), Wanted::kJsonLines, context_.recipe_folder, context_.key + ".path", problems_);
    open_tokenizer();
    if (tokenizer_) classes_.pad = context_.pad_token.value_or(padding_id());
    if (tokenizer_ && context_.classes == 0) read_template();
    if (problems_.size() > before || !context_.rows) return nullptr;
    BadRows bad(config_.max_bad_rows(), context_.key, context_.quiet);
    const auto fill = [&](TokenStoreWriter& out) {
      ConversationEncoder conversations(*tokenizer_, chat_.get(), options_);
      const ClassEncoder classes(*tokenizer_, classes_);
      const auto encode = [&](std::string_view row, Sample& sample) {
        return context_.classes > 0 ? classes.encode(row, sample) : conversations.encode(row, sample);
      };
      for (const auto& file : sources_.files) encode_file(file.path, encode, bad, out);
      return bad.count() == 0;  // a store with bad rows is not cached: its problems must be reported by every run
    };
    auto store = config_.cache() ? cached_tokens(token_cache_folder(config_.cache_dir()), name(), true, fill)
                                 : uncached_tokens(true, fill);
    if (!bad.finish(problems_)) return nullptr;
    return make(std::move(store), bad);
  }

 private:
  void read_columns() {
    using Column = std::pair<std::string_view, std::string*>;
    const std::vector<Column> known = context_.classes > 0 ? std::vector<Column>{{"text", &classes_.text_key},
                                                                                 {"text_a", &classes_.first_key},
                                                                                 {"text_b", &classes_.second_key},
                                                                                 {"label", &classes_.label_key}}
                                                           : std::vector<Column>{{"prompt", &options_.prompt_key},
                                                                                 {"response", &options_.response_key},
                                                                                 {"messages", &options_.messages_key}};
    options_.mask_prompt = config_.mask_prompt();
    classes_.classes = context_.classes;
    if (config_.truncation()) classes_.limit = static_cast<std::size_t>(limit());
    std::vector<std::string_view> names;
    for (const auto& column : known) names.push_back(column.first);
    for (const auto& each : config_.column_mapping()) {
      const auto& name = each.first;  // clang 14: lambdas cannot capture structured bindings
      const auto& column = each.second;
      const auto found = std::find_if(known.begin(), known.end(), [&](const auto& row) { return row.first == name; });
      if (found != known.end())
        *found->second = column;
      else
        problems_.add("bad-value", context_.key + ".column_mapping")
            .says("column_mapping knows no '{}'", name)
            .hint(suggestion(name, names));
    }
  }

  void open_tokenizer() {
    const std::string key = context_.key + ".tokenizer";
    const auto name = config_.tokenizer() || context_.model_folder.empty()
                          ? config_.tokenizer()
                          : std::optional(context_.model_folder.native());
    if (!name) {
      problems_.add("missing-key", key).says("jsonl needs a tokenizer").hint("a folder with tokenizer.json, or bytes");
      return;
    }
    tokenizer_ = data::open_tokenizer(*name, context_.recipe_folder, key, problems_);
    if (tokenizer_) check_tokenizer(tokenizer_->vocab_size(), context_, problems_);
  }

  std::int32_t padding_id() const { return tokenizer_->pad().value_or(tokenizer_->eos().value_or(0)); }

  void read_template() {
    const std::string key = context_.key + ".chat_template";
    std::string file = config_.tokenizer().value_or("") + " (chat template)";
    const auto& path = config_.chat_template();
    if (const auto* named = path ? tokenizer::find_named_template(*path) : nullptr; named != nullptr) {
      template_ = std::string(named->text);
      file = named->name;
    } else if (path) {
      std::error_code error;
      const fs::path beside = context_.recipe_folder / *path;
      const fs::path found = fs::is_regular_file(beside, error) ? beside : fs::path(*path);
      auto read = file_text(found, tokenizer::TemplateBudget::kMostSource);
      if (!read.problem.empty()) {
        problems_.add("missing-file", key)
            .says("there is no chat template '{}'", *path)
            .hint("name a file in Jinja, chatml or llama3");
        return;
      }
      template_ = std::move(read.text);
      file = found.native();
    } else if (tokenizer_->folder() != nullptr) {
      template_ = tokenizer_->folder()->chat_template();
    }
    if (template_ && tokenizer_->folder() == nullptr)
      problems_.add("bad-value", key)
          .says("a chat template needs a tokenizer with special tokens")
          .hint("name a folder with tokenizer.json");
    else if (template_)
      chat_ = tokenizer::ChatTemplate::parse(*template_, file, problems_);
  }

  std::int64_t limit() const {
    constexpr std::int64_t kNone = std::numeric_limits<std::int32_t>::max();
    const auto& model = config_.truncation() ? context_.context_length : context_.max_length;
    return std::min(model.value_or(kNone), config_.seq_length() ? *config_.seq_length() : kNone);
  }

  /// Cache name: a hash of everything that the tokens depend on.
  std::string name() const {
    ContentHash hash;
    hash.add("jsonl 2");
    hash.add(tokenizer_->folder() != nullptr ? std::to_string(tokenizer_->folder()->fingerprint()) : "bytes");
    hash.add(template_.value_or(""));
    hash.add(template_ ? "template" : "plain");
    for (const auto& text : {options_.prompt_key, options_.response_key, options_.messages_key}) hash.add(text);
    hash.add(fmt::format("{} {} {}", options_.mask_prompt, limit(), config_.truncation()));
    if (context_.classes > 0) {
      hash.add(fmt::format("classes {} {}", context_.classes, *classes_.pad));
      for (const auto& text : {classes_.text_key, classes_.first_key, classes_.second_key, classes_.label_key})
        hash.add(text);
    }
    for (const auto& file : sources_.files) hash.add(MappedFile(file.path).text());
    return hash.hex();
  }

  std::string_view example() const {
    return context_.classes > 0
               ? "a row is {\"text\": ..., \"label\": 0} or {\"text_a\": ..., \"text_b\": ..., \"label\": 0}"
               : "a row is {\"prompt\": ..., \"response\": ...} or {\"messages\": [...]}";
  }

  using Encode = std::function<std::optional<RowProblem>(std::string_view row, Sample& sample)>;
  void encode_file(const fs::path& path, const Encode& encode, BadRows& bad, TokenStoreWriter& out) const {
    const MappedFile file(path);
    std::string_view text = file.text();
    if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);
    Sample sample;
    for (int line = 1; !text.empty(); ++line) {
      const std::string_view row = text.substr(0, text.find('\n'));
      text.remove_prefix(std::min(text.size(), row.size() + 1));
      if (row.find_first_not_of(" \t\r") == std::string_view::npos) continue;
      auto problem = Diagnostic{"bad-row"}.hint(std::string(example())).at({path.native(), line, 1}).of(context_.key);
      if (auto found = encode(row, sample)) {
        problem.message = std::move(found->reason);
        if (!found->help.empty()) problem.help = std::move(found->help);
        problem.where.column = static_cast<int>(std::min<std::size_t>(found->column, 1 << 30));
      } else {
        check_length(sample, problem);
      }
      if (problem.message.empty())
        out.add(sample.input_ids, sample.labels);
      else
        bad.add(std::move(problem));
    }
  }

  void check_length(Sample& sample, Diagnostic& problem) const {
    const auto most = static_cast<std::size_t>(limit());
    if (sample.input_ids.size() > most && !config_.truncation()) {
      problem.id = "sequence-too-long";
      problem.message = fmt::format("the row has {} tokens, at most {} are accepted", sample.input_ids.size(), most);
      problem.help = "truncation: true cuts rows, max_bad_rows leaves them out";
      return;
    }
    if (sample.input_ids.size() > most) {
      sample.input_ids.resize(most);
      sample.labels.resize(most);
    }
  }

  /// "; columns not used: input", based on the first row if it has prompt and response. Otherwise an overlooked column
  /// that holds part of the question, as in Alpaca, would go unnoticed.
  std::string unused_columns() const {
    if (sources_.files.empty()) return "";
    const MappedFile file(sources_.files.front().path);
    const std::string_view text = file.text();
    const auto row = rows::json_in_text(text.substr(0, text.find('\n')));
    if (!row.is_object() || row.contains(options_.messages_key) || context_.classes > 0) return "";
    std::string names;
    for (const auto& [name, value] : row.items())
      if (value.is_string() && value != "" && name != options_.prompt_key && name != options_.response_key)
        names += (names.empty() ? "" : ", ") + name;
    return names.empty() ? "" : "; columns not used: " + names;
  }

  std::unique_ptr<Dataset> make(TokenStore store, const BadRows& bad) {
    std::int64_t labels = 0;
    std::optional<TurnEnds> ends;
    if (template_) ends.emplace(*tokenizer_->folder());
    for (std::int64_t row = 0; row < store.rows(); ++row)
      for (const std::int32_t label : store.labels(row)) {
        labels += label == kIgnoredLabel ? 0 : 1;
        if (ends) ends->see(label);
      }
    if (labels == 0) {
      problems_.add("empty-data", context_.key + ".path")
          .says(store.rows() == 0 ? "there is no row" : "no row has a label that counts")
          .hint(std::string(example()));
      return nullptr;
    }
    if (ends) ends->finish(context_);
    std::string summary = fmt::format("jsonl: {} rows, {} tokens, {} labels{}", store.rows(),
                                      format_count(static_cast<double>(store.tokens())),
                                      format_count(static_cast<double>(labels)), bad.summary()) +
                          unused_columns();
    const Padding padding{padding_id(), config_.pad_to_multiple_of(), 0};
    return std::make_unique<JsonlDataset>(std::move(store), padding, std::move(summary));
  }

  const config::JsonlDatasetConfig& config_;
  const DatasetContext& context_;
  Diagnostics& problems_;
  ConversationOptions options_;
  ClassOptions classes_;
  SourceFiles sources_;
  std::unique_ptr<const Tokenizer> tokenizer_;
  std::optional<std::string> template_;
  std::unique_ptr<const tokenizer::ChatTemplate> chat_;
};

}  // namespace

std::unique_ptr<Dataset> open_jsonl(const config::JsonlDatasetConfig& config, const DatasetContext& context,
                                    Diagnostics& problems) {
  return Opening(config, context, problems).run();
}

}  // namespace automodel::data
