// `automodel data`: prints the first rows as they will be trained on.
#include <algorithm>
#include <filesystem>
#include <functional>
#include <span>
#include <utility>

#include <fmt/format.h>

#include "base/bytes.h"
#include "base/json_writer.h"
#include "base/text_table.h"
#include "base/utf8.h"
#include "commands.h"
#include "config/objective.h"
#include "data/open_dataset.h"
#include "data/packed_dataset.h"
#include "data/tokenizer.h"
#include "pictures/decode.h"
#include "plan/located.h"
#include "plan/model_choice.h"
#include "plan/vision_choice.h"
#include "read_row.h"
#include "report.h"
#include "report/rows_page.h"

namespace automodel::app {
namespace {

namespace fs = std::filesystem;

/// The model, if it is available locally; if not, data that needs its tokenizer will report that.
std::optional<plan::ModelChoice> model_of(const config::LoadedRecipe& loaded) {
  plan::Located ignored(loaded);
  auto model = plan::choose_model(loaded, ignored, false);
  if (model) plan::choose_processor(loaded, *model, ignored, false);
  return model;
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

/// The length that rows of each part of the data are cut to; 0: they are not.
std::vector<std::int64_t> limits_of(const config::DatasetConfig& config) {
  std::vector<std::int64_t> out;
  config::each_part(config, [&](const auto& section) {
    out.push_back(0);
    if constexpr (requires { section.truncation() == config::SampleTruncation::kCut; })
      if (section.truncation() == config::SampleTruncation::kCut) out.back() = section.seq_length().value_or(0);
  });
  return out;
}

using Rejected = std::vector<std::pair<std::int64_t, Diagnostic>>;

/// Calls `refused` or `shown` for the first rows in order: unusable ones keep their position.
void each_row(std::int64_t most, const data::Dataset& dataset, const Rejected& rejected,
              const std::function<void(std::int64_t row, const Diagnostic&)>& refused,
              const std::function<void(std::int64_t row, std::int64_t index)>& shown) {
  const std::int64_t total = dataset.size() + static_cast<std::int64_t>(rejected.size());
  auto bad = rejected.begin();
  for (std::int64_t row = 0, index = 0; row < std::min(most, total); ++row) {
    if (bad != rejected.end() && bad->first == row)
      refused(row, (bad++)->second);
    else
      shown(row, index++);
  }
}

class Showing {
 public:
  Showing(const Options& options, const data::Dataset& dataset, const data::Tokenizer* tokenizer,
          const std::optional<pictures::PictureTokens>& pictures, bool classes)
      : options_(options), dataset_(dataset), pictures_(pictures), row_(dataset, tokenizer, pictures, classes) {}

  void run(const Rejected& rejected) {
    each_row(
        options_.rows, dataset_, rejected, [&](std::int64_t row, const Diagnostic& problem) { refused(row, problem); },
        [&](std::int64_t row, std::int64_t index) { one(row, index); });
  }

 private:
  std::string row_json(std::int64_t row) const {
    JsonWriter json;
    json.begin_object();
    json.member("row", row);
    if (dataset_.parts().size() > 1) json.member("part", static_cast<std::int64_t>(row_.part()));
    json.member("shifted", true);  // labels[i] is the target of input_ids[i]
    for (const auto& [name, ids] :
         {std::pair("input_ids", &row_.sample().input_ids), std::pair("labels", &row_.sample().labels),
          std::pair("attention_mask", &row_.attention())}) {
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
    for (const auto& size : row_.sizes()) {
      json.begin_object();
      json.member("width", size.width);
      json.member("height", size.height);
      json.member("tokens", row_.tokens_of(size));
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
    row_.read(index);
    if (options_.json) return out(row_json(row));
    out(fmt::format("row {}  {}\n", row, row_.counts()));
    for (std::size_t i = 0; i < row_.sizes().size(); ++i) out(fmt::format("  {}\n", row_.caption(i)));
    for (const auto& run : runs_of(row_.sample(), row_.attention())) {
      if (run.mark == '|') continue;
      if (run.mark == '.') {
        out(fmt::format("  . padding: {} times {}\n", run.ids.size(), run.ids.front()));
        continue;
      }
      Ids ids;
      for (const auto& piece : row_.pieces(run.ids))  // of a picture's placeholders one is left
        for (const auto& id : piece.ids)
          if (!piece.picture || id != pictures_->placeholder || &id == &piece.ids.front()) ids.push_back(id);
      out(indented(printable_lines(row_.text_of(run, ids)), run.mark));
    }
  }

  const Options& options_;
  const data::Dataset& dataset_;
  const std::optional<pictures::PictureTokens>& pictures_;
  ReadRow row_;
};

/// Rows, or packs of them, for the page.
class Paging {
 public:
  /// `limits`: limits_of() the data.
  Paging(const data::Dataset& dataset, const data::Tokenizer* tokenizer,
         const std::optional<pictures::PictureTokens>& pictures, bool classes, std::vector<std::int64_t> limits)
      : dataset_(dataset), row_(dataset, tokenizer, pictures, classes), limits_(std::move(limits)) {}

  /// `kind`: "row" or "pack".
  report::ShownRow shown(const char* kind, std::int64_t number, std::int64_t index) {
    using enum report::RowPart::Kind;
    row_.read(index);
    report::ShownRow out{.title = fmt::format("{} {}", kind, number), .note = row_.counts()};
    for (std::size_t i = 0; i < row_.sizes().size(); ++i) out.pictures.push_back(picture(index, i));
    const auto runs = runs_of(row_.sample(), row_.attention());
    const auto limit = limits_[std::min(row_.part(), limits_.size() - 1)];
    auto rows_left = std::ranges::count(runs, '|', &Run::mark);
    for (const auto& run : runs) {
      if (run.mark == '|') {
        const bool full = limit > 0 && run.length + 1 >= limit, last = --rows_left == 0;
        if (full || !last)
          out.parts.push_back(
              {kBorder, fmt::format("{}{}{}", full ? fmt::format("fills seq_length {} or was cut to it", limit) : "",
                                    full && !last ? "; " : "", last ? "" : "the next row of the pack")});
      } else if (run.mark == '.') {
        out.parts.push_back({kPadding, fmt::format("{} x {}", row_.text_of({run.ids.front()}), run.ids.size())});
      } else {
        for (const auto& piece : row_.pieces(run.ids))
          out.parts.push_back({piece.picture     ? kPicture
                               : run.mark == '+' ? kLabel
                                                 : kContext,
                               piece.picture ? folded(piece.ids) : row_.text_of(run, piece.ids)});
      }
    }
    return out;
  }

 private:
  /// "<image> x 256", with the number of rows where tokens stand between them.
  std::string folded(const Ids& ids) const {
    const auto count = std::ranges::count(ids, ids.front());
    return fmt::format("{} x {}{}", row_.text_of({ids.front()}), count,
                       count == std::ssize(ids) ? "" : fmt::format(" in {} rows", std::ssize(ids) - count + 1));
  }

  report::RowPicture picture(std::int64_t index, std::size_t number) {
    report::RowPicture out{.caption = row_.caption(number)};
    auto stored = dataset_.stored_picture(index, number);
    out.media = pictures::media_type(stored.bytes);
    out.upright = stored.upright;
    if (stored.bytes.empty())
      out.caption += "; random pixels";
    else if (stored.bytes.size() > left_)
      out.caption += fmt::format("; its {} are left out: a page holds {}", format_bytes(double(stored.bytes.size())),
                                 format_bytes(report::kMostPictureBytes));
    else
      left_ -= stored.bytes.size(), out.bytes = std::move(stored.bytes);
    return out;
  }

  const data::Dataset& dataset_;
  ReadRow row_;
  std::vector<std::int64_t> limits_;
  std::size_t left_ = report::kMostPictureBytes;
};

/// A row's tokens without padding.
std::int64_t length_of(const data::Dataset& dataset, std::int64_t row) {
  Ids attention;
  dataset.attention_mask(row, attention);
  return std::count(attention.begin(), attention.end(), 1);
}

/// Reports how many rows have the maximum length that truncation allows; "" if rows are not truncated.
std::string cut_rows(const config::DatasetConfig& config, const data::Dataset& dataset) {
  std::string out;
  const auto parts = dataset.parts();
  const auto limits = limits_of(config);
  for (std::size_t part = 0; part < limits.size(); ++part) {
    const auto& rows = *parts[std::min(part, parts.size() - 1)].rows;
    const std::int64_t limit = limits[part];
    if (limit == 0) continue;
    std::int64_t count = 0;
    for (std::int64_t row = 0; row < rows.size(); ++row) count += length_of(rows, row) + 1 >= limit ? 1 : 0;
    out += fmt::format("  {} of {} rows{} fill seq_length {} or were cut to it\n", count, rows.size(),
                       parts.size() > 1 ? fmt::format(" of part {}", part) : "", limit);
  }
  return out;
}

/// Mean, 95th percentile and maximum of the rows' lengths, and how many rows usual limits would cut; "" where all rows
/// are windows of the same length.
std::string lengths_of(const data::Dataset& dataset) {
  if (dataset.padding().shortest > 0 || dataset.size() == 0) return "";
  std::vector<std::int64_t> lengths(static_cast<std::size_t>(dataset.size()));
  double sum = 0;
  for (std::size_t row = 0; row < lengths.size(); ++row) {
    lengths[row] = length_of(dataset, static_cast<std::int64_t>(row));
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

/// The page: the first rows, or the first packs with the unusable rows before them.
std::string page_of(const Options& options, const config::LoadedRecipe& loaded, const std::string& key,
                    const data::Dataset& dataset, bool packs, const Rejected& rejected, Paging& paging,
                    const std::string& summary) {
  std::vector<report::ShownRow> shown;
  const auto refused = [&](std::int64_t row, const Diagnostic& problem) {
    shown.push_back({.title = fmt::format("row {}", row),
                     .note = fmt::format("cannot be used: {}", problem.message),
                     .usable = false});
  };
  if (packs)
    for (const auto& [row, problem] : std::span(rejected).first(std::min<std::size_t>(rejected.size(), options.rows)))
      refused(row, problem);
  each_row(options.rows, dataset, packs ? Rejected() : rejected, refused, [&](std::int64_t row, std::int64_t index) {
    shown.push_back(paging.shown(packs ? "pack" : "row", row, index));
  });
  return report::rows_page(fmt::format("{} of {}", key, loaded.path), summary, shown);
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
  Rejected rejected;
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
  const auto allowed = most_bad_rows(*config);
  const bool too_many = static_cast<std::int64_t>(rejected.size()) > allowed;
  const auto rows = dataset;
  const auto show = [&] {
    Showing(options, *rows, tokenizer.get(), context.pictures, context.classes > 0).run(rejected);
  };
  if (options.html.empty()) show();
  const auto& packing = recipe.packed_sequence();
  const bool packs = !options.validation && packing.packed_sequence_size() > 0 && dataset->size() > 0;
  if (packs && (!options.html.empty() || (!options.json && !too_many)))
    dataset = data::pack(dataset, packing, recipe.distributed->cp_size().value_or(1), "packed_sequence", problems = {});
  if (!dataset) return fail(std::move(problems));
  const auto summary = [&] {
    return fmt::format("{}\n{}", dataset->summary(), parts_of(*rows) + lengths_of(*rows) + cut_rows(*config, *rows));
  };
  if (!options.html.empty()) {
    auto limits = limits_of(*config);
    // A pack does not tell of which part its rows are.
    if (packs && std::ranges::adjacent_find(limits, std::not_equal_to()) != limits.end()) limits = {0};
    Paging paging(*dataset, tokenizer.get(), context.pictures, context.classes > 0, std::move(limits));
    write_file(options.html, page_of(options, loaded, key, *dataset, packs, rejected, paging, summary()));
    // After the file, so that a page that cannot be written leaves the problem alone in the output of --json.
    if (options.json) show();
  }
  // What a run would refuse is shown, and refused here too.
  if (rows->size() == 0 && rejected.empty())
    return fail(
        {Diagnostic{"empty-data"}.says("there is no row to train on").hint("rows with something to learn").of(key)});
  if (too_many) {
    const auto& bad = rejected.front().second;
    err(to_text(Diagnostic{"bad-row"}
                    .says("a run refuses these rows: {}", bad.message)
                    .hint("mend them, or leave them out: {}.max_bad_rows", key)
                    .at(bad.where)) +
        "\n");
    return code(ExitCode::kBadInput);
  }
  if (options.json) return code(ExitCode::kOk);
  out(fmt::format("{}{}  + label tokens, . padding; the rest is context only\n", options.html.empty() ? "\n" : "",
                  summary()));
  return code(ExitCode::kOk);
}

}  // namespace automodel::app
