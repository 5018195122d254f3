#include "data/built_dataset.h"

#include <algorithm>
#include <limits>
#include <utility>

#include <fmt/format.h>

#include "base/bytes.h"
#include "base/error.h"
#include "base/log.h"
#include "config/value.h"
#include "data/bad_rows.h"
#include "data/content_hash.h"
#include "data/mapped_file.h"
#include "data/token_store.h"
#include "data/turn_ends.h"
#include "pictures/decode.h"

namespace automodel::data {
namespace {

/// Encoding of labels in the store: labels of positions with attention mask 0 are mapped below -100.
constexpr std::int32_t kUnattended = kIgnoredLabel - 2;
constexpr std::int32_t stored_label(std::int32_t label, bool attended) {
  return attended ? label : label == kIgnoredLabel ? kIgnoredLabel - 1 : kUnattended - label;
}
constexpr std::int32_t read_label(std::int32_t stored) {
  return stored >= kIgnoredLabel ? stored : stored == kIgnoredLabel - 1 ? kIgnoredLabel : kUnattended - stored;
}

class BuiltDataset final : public Dataset {
 public:
  BuiltDataset(TokenStore store, std::vector<std::vector<PictureSource>> pictures,
               std::unique_ptr<const rows::Rows> table, Padding padding, std::int64_t common_length,
               std::string summary)
      : store_(std::move(store)),
        pictures_(std::move(pictures)),
        table_(std::move(table)),
        padding_(padding),
        common_length_(common_length),
        summary_(std::move(summary)) {}
  std::int64_t size() const override { return store_.rows(); }
  std::int64_t length(std::int64_t index) const override { return std::max(store_.length(index), common_length_); }
  Padding padding() const override { return padding_; }
  std::string summary() const override { return summary_; }

  void read(std::int64_t index, Sample& out) const override {
    const auto ids = store_.ids(index), labels = store_.labels(index);
    const auto length = static_cast<std::size_t>(this->length(index));
    out.positions.clear();
    out.segments.clear();
    out.pictures.clear();
    for (const auto& source : pictures_of(index))
      out.pictures.push_back(out.pixels ? decoded(source) : std::make_shared<pictures::Picture>(marked(source)));
    out.input_ids.assign(ids.begin(), ids.end());
    out.input_ids.resize(length, padding_.id);
    out.labels.assign(length, kIgnoredLabel);
    std::size_t real = 0;  // padding that has a label counts in the loss, so it is not treated as padding
    for (std::size_t t = 0; t < labels.size(); ++t) {
      out.labels[t] = read_label(labels[t]);
      if (labels[t] >= kIgnoredLabel || out.labels[t] != kIgnoredLabel) real = t + 1;
    }
    if (real == length) return;
    out.segments.assign(length, 0);
    std::fill_n(out.segments.begin(), real, 1);
  }

  void attention_mask(std::int64_t index, std::vector<std::int32_t>& out) const override {
    const auto labels = store_.labels(index);
    out.assign(static_cast<std::size_t>(length(index)), 0);
    for (std::size_t t = 0; t < labels.size(); ++t) out[t] = labels[t] >= kIgnoredLabel ? 1 : 0;
  }

  std::vector<pictures::PictureMark> pictures(std::int64_t index) const override {
    std::vector<pictures::PictureMark> out;
    for (const auto& source : pictures_of(index)) out.push_back(source.mark);
    return out;
  }

  StoredPicture stored_picture(std::int64_t index, std::size_t number) const override {
    const auto& source = pictures_of(index)[number];
    return {taken(source, [&] { return stored_bytes(source, table_.get()); }), source.upright};
  }

 private:
  std::span<const PictureSource> pictures_of(std::int64_t index) const {
    if (pictures_.empty()) return {};
    return pictures_[static_cast<std::size_t>(index)];
  }
  static pictures::Picture marked(const PictureSource& source) { return {source.mark, {}}; }
  pictures::PicturePtr decoded(const PictureSource& source) const {
    return taken(source, [&] {
      auto picture = read_picture(source, table_.get());
      if (picture->size != source.mark.size)
        throw pictures::PictureError("its size has changed since the data set was opened");
      return picture;
    });
  }
  /// What `take` gives of a picture that may be gone or another since the rows were built.
  template <class Take>
  auto taken(const PictureSource& source, const Take& take) const -> decltype(take()) {
    std::string why;
    try {
      return take();
    } catch (const pictures::PictureError& error) {
      why = error.what();
    } catch (const rows::RowError& error) {
      why = error.what();
    }
    const auto where = source.file.empty() ? table_->where(source.row) : SourceLocation{source.file.native(), 0, 0};
    throw Error(ExitCode::kEnvironment,
                Diagnostic{"bad-row"}
                    .says("'{}' {}cannot be decoded: {}", where.file,
                          source.file.empty() ? fmt::format("has a picture in row {} that ", where.line) : "", why)
                    .hint("replace the picture, or remove its row")
                    .at(where));
  }

  TokenStore store_;
  std::vector<std::vector<PictureSource>> pictures_;  ///< by row; empty: there are none
  std::unique_ptr<const rows::Rows> table_;           ///< of the pictures that are not files; null: all are
  Padding padding_;
  std::int64_t common_length_;
  std::string summary_;
};

class BuiltOpening {
 public:
  BuiltOpening(const BuiltSettings& settings, const DatasetContext& context, Diagnostics& problems)
      : settings_(settings), context_(context), problems_(problems) {}

  std::unique_ptr<Dataset> run(const void* config, MakeBuilder make) {
    auto source = settings_.tokenizer;
    source.plain = source.plain || context_.pictures.has_value();  // a processor's is transformers' own
    BuilderParts parts{context_, RowTokenizer::open(source, context_, problems_)};
    if (!parts.tokenizer) return nullptr;
    // Of rows, each id is looked at.
    if (!context_.rows) check_tokenizer(parts.tokenizer->folder().vocab_size(), context_, problems_);
    const auto builder = make(config, parts, problems_);
    if (!builder) return nullptr;
    BadRows bad(settings_.max_bad_rows, context_.key, context_.quiet);
    bad.expect(builder->size());
    const auto fill = [&](TokenStoreWriter& out) {
      for (std::int64_t row = 0; row < builder->size(); ++row) add(*builder, row, bad, out);
      return bad.count() == 0;  // a store with bad rows is not cached: its problems must be reported by every run
    };
    auto store = settings_.cache && context_.rejected == nullptr && !context_.pictures
                     ? cached_tokens(token_cache_folder(settings_.cache_dir), name(parts), true, fill)
                     : uncached_tokens(true, fill);
    const bool lenient = context_.rejected != nullptr && store.rows() > 0;
    if (!lenient && !bad.finish(problems_)) return nullptr;
    return finish(*builder, std::move(store), bad, parts);
  }

 private:
  /// Cache name: a hash of everything that the tokens depend on.
  std::string name(const BuilderParts& parts) const {
    ContentHash hash;
    hash.add("rows 2");
    hash.add(settings_.kind);
    hash.add(config::to_json(settings_.section));
    hash.add(parts.tokenizer->fingerprint());
    hash.add(parts.extra);
    hash.add(parts.rows.selection);
    hash.add(fmt::format("{} {}", context_.vocab_size.value_or(0), context_.max_length.value_or(0)));
    for (const auto& file : parts.rows.files) hash.add(MappedFile(file).text());
    return hash.hex();
  }

  void add(Builder& builder, std::int64_t row, BadRows& bad, TokenStoreWriter& out) {
    auto problem = Diagnostic{"bad-row"}.hint("max_bad_rows leaves such rows out").of(context_.key);
    std::optional<BuiltRow> built;
    try {
      built = builder.build(row);
      if (!built) return;
      check(*built, problem);
    } catch (const RowRefused& error) {
      problem.message = error.what();
    } catch (const rows::RowError& error) {
      problem.message = error.what();
      problem.where = error.where;
    }
    if (!problem.message.empty()) {
      if (problem.where.file.empty()) problem.where = builder.where(row);
      if (context_.rejected != nullptr) context_.rejected->push_back({row, problem});
      return bad.add(std::move(problem));
    }
    for (std::size_t t = 0; t < built->labels.size(); ++t)
      built->labels[t] = stored_label(built->labels[t], static_cast<std::int64_t>(t) < built->attended);
    out.add(built->input_ids, built->labels);
    rows_with_cut_answers_ += built->cuts_answers ? 1 : 0;
    if (context_.pictures) pictures_.push_back(std::move(built->pictures));
  }

  void check(const BuiltRow& row, Diagnostic& problem) const {
    const auto length = static_cast<std::int64_t>(row.input_ids.size());
    if (context_.max_length && length > *context_.max_length) {
      problem.id = "sequence-too-long";
      problem.message = fmt::format("the row has {} tokens, the model accepts {}", length, *context_.max_length);
      problem.help = "seq_length with truncation: true cuts rows, max_bad_rows leaves them out";
    }
    if (length == 0) problem.message = "the row has no token";
    for (const std::int32_t id : row.input_ids)
      if (context_.vocab_size && id >= *context_.vocab_size) {
        problem.id = "token-out-of-range";
        problem.message = fmt::format("the row has the id {}, the model's vocabulary {}", id, *context_.vocab_size);
        problem.help = "the tokenizer belongs to another model";
        return;
      }
  }

  std::unique_ptr<Dataset> finish(const Builder& builder, TokenStore store, const BadRows& bad, BuilderParts& parts) {
    std::int64_t labels = 0, longest = 0;
    TurnEnds ends(parts.tokenizer->folder());
    for (std::int64_t row = 0; row < store.rows(); ++row) {
      longest = std::max(longest, store.length(row));
      for (const std::int32_t stored : store.labels(row)) {
        const std::int32_t label = read_label(stored);
        labels += label == kIgnoredLabel ? 0 : 1;
        ends.see(label);
      }
    }
    if (labels == 0 && context_.rejected == nullptr) {
      problems_.add("empty-data", context_.key)
          .says(store.rows() == 0 ? "there is no row" : "no row has a label that counts")
          .hint(store.rows() == 0 ? "the files are empty, or every row was left out"
                                  : "a longer seq_length, or rows with answers");
      return nullptr;
    }
    if (!parts.extra.empty() && labels > 0 && context_.classes == 0)
      ends.finish(context_);  // rows come from a chat template
    if (rows_with_cut_answers_ > 0 && !context_.quiet)
      log::warning(
          Diagnostic{"answers-end-early"}
              .says("in {} of {} rows of {}, labels end inside an answer", rows_with_cut_answers_, store.rows(),
                    context_.key)
              .hint("they end at the first token that the chat template puts behind an answer, as NeMo AutoModel's do, "
                    "and the answer has this token too: let the template put a special token there; 'automodel data' "
                    "shows what is learned")
              .of(context_.key));
    const std::int64_t multiple = builder.common_multiple();
    const std::int64_t common = multiple == 0 ? 0 : (longest + multiple - 1) / multiple * multiple;
    std::string summary = fmt::format("{}: {} rows, {} tokens, {} labels{}", settings_.kind, store.rows(),
                                      format_count(static_cast<double>(store.tokens())),
                                      format_count(static_cast<double>(labels)), bad.summary());
    const bool cells = std::ranges::any_of(pictures_, [](const auto& row) {
      return std::ranges::any_of(row, [](const PictureSource& source) { return source.file.empty(); });
    });
    return std::make_unique<BuiltDataset>(std::move(store), std::move(pictures_),
                                          cells ? std::move(parts.rows.rows) : nullptr, Padding{builder.fill(), 1, 0},
                                          common, std::move(summary));
  }

  const BuiltSettings& settings_;
  const DatasetContext& context_;
  Diagnostics& problems_;
  std::vector<std::vector<PictureSource>> pictures_ = {};  ///< of a model that takes them, by row
  std::int64_t rows_with_cut_answers_ = 0;
};

}  // namespace

std::unique_ptr<Dataset> open_built(const BuiltSettings& settings, const void* config, MakeBuilder make,
                                    const DatasetContext& context, Diagnostics& problems) {
  return BuiltOpening(settings, context, problems).run(config, make);
}

}  // namespace automodel::data
