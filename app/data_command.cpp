// `automodel data`: prints the first rows as they will be trained on.
#include <algorithm>
#include <filesystem>
#include <span>
#include <utility>

#include <fmt/format.h>

#include "base/json_writer.h"
#include "base/text_table.h"
#include "base/utf8.h"
#include "commands.h"
#include "config/objective.h"
#include "data/open_dataset.h"
#include "data/packed_dataset.h"
#include "data/tokenizer.h"
#include "plan/located.h"
#include "plan/model_choice.h"
#include "plan/vision_choice.h"
#include "report.h"

namespace automodel::app {
namespace {

namespace fs = std::filesystem;
using Ids = std::vector<std::int32_t>;

/// The model, if it is available locally; if not, data that needs its tokenizer will report that.
std::optional<plan::ModelChoice> model_of(const config::LoadedRecipe& loaded) {
  plan::Located ignored(loaded);
  auto model = plan::choose_model(loaded, ignored, false);
  if (model) plan::choose_processor(loaded, *model, ignored, false);
  return model;
}

/// A run of ids that are all learned, all context, or all padding.
struct Run {
  char mark;
  Ids ids;
};

std::vector<Run> runs_of(const data::Sample& sample, const Ids& attention) {
  std::vector<Run> out;
  for (std::size_t t = 0; t < sample.input_ids.size(); ++t) {
    // Labels are shifted: labels[t - 1] is the target for token t, or kIgnoredLabel.
    const bool learned = t > 0 && sample.labels[t - 1] != data::kIgnoredLabel;
    const char mark = attention[t] == 0 && !learned ? '.' : learned ? '+' : ' ';
    if (out.empty() || out.back().mark != mark) out.push_back({mark, {}});
    out.back().ids.push_back(sample.input_ids[t]);
  }
  const std::int32_t last = sample.labels.empty() ? data::kIgnoredLabel : sample.labels.back();
  if (last != data::kIgnoredLabel) {
    if (out.empty() || out.back().mark != '+') out.push_back({'+', {}});
    out.back().ids.push_back(last);
  }
  return out;
}

/// Formats text on its own lines.
std::string indented(const std::string& text, char mark) {
  std::string out;
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    out += fmt::format("  {} {}{}\n", mark, text.substr(at, end - at), end < text.size() ? "\\n" : "");
    at = end + 1;
    if (end + 1 == text.size()) break;
  }
  return out;
}

class Showing {
 public:
  Showing(const Options& options, const data::Dataset& dataset,
          std::vector<std::pair<std::int64_t, Diagnostic>> rejected, const data::Tokenizer* tokenizer,
          std::optional<pictures::PictureTokens> pictures)
      : options_(options),
        dataset_(dataset),
        rejected_(std::move(rejected)),
        tokenizer_(tokenizer),
        pictures_(pictures) {}

  /// Shows rows in order; unusable rows keep their position and show the reason.
  void run() {
    const std::int64_t total = dataset_.size() + static_cast<std::int64_t>(rejected_.size());
    const std::int64_t wanted = std::min<std::int64_t>(options_.rows, total);
    auto bad = rejected_.begin();
    for (std::int64_t row = 0, index = 0; row < wanted; ++row) {
      if (bad != rejected_.end() && bad->first == row)
        refused(row, (bad++)->second);
      else
        one(row, index++);
    }
  }

 private:
  std::string row_json(std::int64_t row) const {
    JsonWriter json;
    json.begin_object();
    json.member("row", row);
    if (dataset_.parts().size() > 1) json.member("part", static_cast<std::int64_t>(part_));
    json.member("shifted", true);  // labels[i] is the target of input_ids[i]
    for (const auto& [name, ids] : {std::pair("input_ids", &sample_.input_ids), std::pair("labels", &sample_.labels),
                                    std::pair("attention_mask", &attention_)}) {
      json.key(name);
      json.value(std::span<const std::int32_t>(*ids));
    }
    if (pictures_) pictures_json(json);
    json.end_object();
    return json.take() + "\n";
  }
  void pictures_json(JsonWriter& json) const {
    json.key("pictures");
    json.begin_array();
    for (const auto& [size, content] : marks_) {
      json.begin_object();
      json.member("width", size.width);
      json.member("height", size.height);
      json.member("tokens", pictures_->count(size));
      json.end_object();
    }
    json.end_array();
  }
  void refused(std::int64_t row, const Diagnostic& problem) const {
    if (!options_.json) return out(fmt::format("row {}  is skipped: {}\n", row, printable(problem.message)));
    JsonWriter json;
    json.begin_object();
    json.member("row", row);
    json.member("error", problem.message);
    json.end_object();
    out(json.take() + "\n");
  }

  void one(std::int64_t row, std::int64_t index) {
    dataset_.read(index, sample_);
    part_ = dataset_.part_of(index);
    dataset_.attention_mask(index, attention_);
    marks_ = dataset_.pictures(index);
    next_ = 0;
    if (options_.json) return out(row_json(row));
    const auto size = static_cast<std::int64_t>(sample_.input_ids.size());
    const auto learned = static_cast<std::int64_t>(sample_.labels.size()) -
                         std::count(sample_.labels.begin(), sample_.labels.end(), data::kIgnoredLabel);
    const auto padding = std::count(attention_.begin(), attention_.end(), 0);
    const auto part = dataset_.parts().size() > 1 ? fmt::format("part {}, ", part_) : std::string();
    out(fmt::format("row {}  {}{} tokens, {} label tokens ({:.1f} %){}\n", row, part, size, learned,
                    size == 0 ? 0.0 : 100.0 * static_cast<double>(learned) / static_cast<double>(size),
                    padding == 0 ? "" : fmt::format(", {} padding", padding)));
    for (std::size_t i = 0; i < marks_.size(); ++i)
      out(fmt::format("  picture {}: {} x {} pixels, {} tokens\n", i + 1, marks_[i].size.width, marks_[i].size.height,
                      pictures_->count(marks_[i].size)));
    for (const auto& run : runs_of(sample_, attention_)) {
      if (run.mark == '.')
        out(fmt::format("  . padding: {} times {}\n", run.ids.size(), run.ids.front()));
      else
        out(indented(printable_lines(text_of(run.ids)), run.mark));
    }
  }

  /// Includes special tokens, which plain text would not show.
  std::string text_of(Ids ids) {
    if (pictures_) keep_one_placeholder(ids);
    if (tokenizer_ == nullptr) return fmt::format("{}", fmt::join(ids, " "));
    if (tokenizer_->folder() != nullptr) return tokenizer_->folder()->decode(ids, false);
    return tokenizer_->decode(ids);
  }

  int placeholders(pictures::Size size) const {
    if (pictures_->per_picture > 0 || !pictures_->processor || !pictures_->processor->patches)
      return pictures_->count(size);
    const auto [columns, rows] = pictures_->grid(size);
    return columns * rows;
  }

  /// Leaves one of the placeholders of each picture.
  void keep_one_placeholder(Ids& ids) {
    int left = 0;
    std::erase_if(ids, [&](std::int32_t id) {
      if (id != pictures_->placeholder) return false;
      const bool first = left == 0;
      if (first && next_ < marks_.size()) left = placeholders(marks_[next_++].size);
      left = std::max(left - 1, 0);
      return !first;
    });
  }

  const Options& options_;
  const data::Dataset& dataset_;
  std::vector<std::pair<std::int64_t, Diagnostic>> rejected_;
  const data::Tokenizer* tokenizer_;
  std::optional<pictures::PictureTokens> pictures_;
  data::Sample sample_;
  std::vector<pictures::PictureMark> marks_;
  std::size_t next_ = 0;  ///< of the sizes: the picture whose placeholders come next
  std::size_t part_ = 0;
  Ids attention_;
};

/// Reports how many rows have the maximum length that truncation allows; "" if rows are not truncated.
std::string cut_rows(const config::DatasetConfig& config, const data::Dataset& dataset) {
  std::string out;
  const auto parts = dataset.parts();
  std::size_t part = 0;
  config::each_part(config, [&](const auto& section) {
    const auto& rows = *parts[std::min(part++, parts.size() - 1)].rows;
    if constexpr (requires { section.truncation() == config::SampleTruncation::kCut; }) {
      const std::int64_t limit =
          section.truncation() == config::SampleTruncation::kCut ? section.seq_length().value_or(0) : 0;
      if (limit == 0) return;
      std::int64_t count = 0;
      for (std::int64_t row = 0; row < rows.size(); ++row) count += rows.length(row) + 1 >= limit ? 1 : 0;
      out += fmt::format("  {} of {} rows{} fill seq_length {} or were cut to it\n", count, rows.size(),
                         parts.size() > 1 ? fmt::format(" of part {}", part - 1) : "", limit);
    }
  });
  return out;
}

/// Mean, 95th percentile and maximum of the rows' lengths, and how many rows usual limits would cut; "" where all rows
/// are windows of the same length.
std::string lengths_of(const data::Dataset& dataset) {
  if (dataset.padding().shortest > 0 || dataset.size() == 0) return "";
  std::vector<std::int64_t> lengths(static_cast<std::size_t>(dataset.size()));
  Ids attention;
  double sum = 0;
  for (std::size_t row = 0; row < lengths.size(); ++row) {
    dataset.attention_mask(static_cast<std::int64_t>(row), attention);  // without padding
    lengths[row] = std::count(attention.begin(), attention.end(), 1);
    sum += static_cast<double>(lengths[row]);
  }
  std::ranges::sort(lengths);
  const auto size = lengths.size();
  std::string out = fmt::format("  lengths: mean {:.1f}, 95% up to {}, longest {} tokens\n",
                                sum / static_cast<double>(size), lengths[(95 * size + 99) / 100 - 1], lengths.back());
  std::string cut;
  for (const std::int64_t limit : {512, 1024, 2048}) {
    const auto longer = lengths.end() - std::ranges::upper_bound(lengths, limit);
    cut += fmt::format("{}{} to {} ({:.1f} %)", cut.empty() ? "" : ", ", longer, limit,
                       100.0 * static_cast<double>(longer) / static_cast<double>(size));
  }
  return out + fmt::format("  rows that would be cut: {}\n", cut);
}

/// How many rows of an epoch come from each part of a mixture; "" for any other data set.
std::string parts_of(const data::Dataset& dataset) {
  const auto parts = dataset.parts();
  if (!dataset.endless()) return "";
  TextTable table({"part", "share", "rows an epoch", "read", "data"});
  std::vector<std::int64_t> counts(parts.size(), 0);
  for (std::int64_t row = 0; row < dataset.size(); ++row) ++counts[dataset.part_of(row)];
  for (std::size_t p = 0; p < parts.size(); ++p)
    table.add({std::to_string(p), fmt::format("{:.1f} %", 100 * parts[p].share), std::to_string(counts[p]),
               fmt::format("{:.2f} times", static_cast<double>(counts[p]) / static_cast<double>(parts[p].rows->size())),
               parts[p].rows->summary()});
  return table.text();
}

/// What the section asks for and a run refuses; the rows are shown as they are without it.
void warn_of_unsupported(const config::LoadedRecipe& loaded, const std::string& key) {
  for (const auto& each : loaded.unsupported)
    if (each.key.starts_with(key + "."))
      err(to_text(Diagnostic{"unsupported"}
                      .says("{} is not supported: {}", each.key, each.reason)
                      .hint("train refuses it; the rows below are shown as if it were not set")
                      .at(each.where),
                  "warning") +
          "\n");
}

/// How many unusable rows a run leaves out before it refuses the data.
std::int64_t most_bad_rows(const config::DatasetConfig& config) {
  std::int64_t out = 0;
  config::each_part(config, [&](const auto& section) {
    if constexpr (requires { section.max_bad_rows(); }) out += section.max_bad_rows();
  });
  return out;
}

}  // namespace

int run_data(const Options& options) {
  const auto loaded = load(options);
  if (!loaded.problems.empty()) return refuse(loaded.problems, loaded, options.json);
  const auto& recipe = loaded.recipe;
  const std::string key = options.validation ? "validation_dataset" : "dataset";
  const auto& config = options.validation ? recipe.validation_dataset() : recipe.dataset();
  const auto fail = [&](Diagnostics problems) {
    for (auto& problem : problems)
      if (problem.where.file.empty()) problem.where = loaded.origins.nearest(problem.key);
    return refuse(problems, loaded, options.json);
  };
  if (!config)
    return fail({Diagnostic{"missing-key"}.says("the recipe has no {}", key).hint("add it with a _target_").of(key)});
  warn_of_unsupported(loaded, key);
  std::vector<std::pair<std::int64_t, Diagnostic>> rejected;
  const auto& shuffle = (options.validation ? recipe.validation_dataloader() : recipe.dataloader()).shuffle();
  data::DatasetContext context{.recipe_folder = fs::path(loaded.path).parent_path(),
                               .key = key,
                               .classes = config::classes_of(loaded.recipe),
                               .seed = static_cast<std::uint64_t>(loaded.seed()),
                               .shuffle = shuffle.value_or(!options.validation),
                               .rejected = &rejected};
  if (const auto model = model_of(loaded)) {
    context.model_folder = model->folder;
    context.pictures = plan::picture_tokens(*model);
    if (context.classes > 0) {  // decide which token of a row has the label
      context.context_length = model->spec.max_positions;
      context.pad_token = model->spec.pad_token;
    }
  }
  Diagnostics problems;
  std::shared_ptr<const data::Dataset> dataset = data::open_dataset(*config, context, problems);
  if (!dataset) return fail(std::move(problems));
  const auto tokenizer = data::open_tokenizer_of(*config, context, problems);  // only for display
  const auto bad = rejected.empty() ? std::optional<Diagnostic>() : std::optional(rejected.front().second);
  const auto allowed = most_bad_rows(*config);
  const bool too_many = static_cast<std::int64_t>(rejected.size()) > allowed;
  Showing(options, *dataset, std::move(rejected), tokenizer.get(), context.pictures).run();
  // What a run would refuse is shown, and refused here too.
  if (dataset->size() == 0 && !bad)
    return fail(
        {Diagnostic{"empty-data"}.says("there is no row to train on").hint("rows with something to learn").of(key)});
  if (bad && too_many) {
    err(to_text(Diagnostic{"bad-row"}
                    .says("a run refuses these rows: {}", bad->message)
                    .hint("mend them, or leave them out: {}.max_bad_rows", key)
                    .at(bad->where)) +
        "\n");
    return code(ExitCode::kBadInput);
  }
  if (options.json) return code(ExitCode::kOk);
  const std::string cut = parts_of(*dataset) + lengths_of(*dataset) + cut_rows(*config, *dataset);
  const auto& packing = recipe.packed_sequence();
  if (!options.validation && packing.packed_sequence_size() > 0)
    dataset = data::pack(std::move(dataset), packing, recipe.distributed->cp_size().value_or(1), "packed_sequence",
                         problems = {});
  if (!dataset) return fail(std::move(problems));
  out(fmt::format("\n{}\n{}  + label tokens, . padding; the rest is context only\n", dataset->summary(), cut));
  return code(ExitCode::kOk);
}

}  // namespace automodel::app
