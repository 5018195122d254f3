// Conversations: OpenAI messages and ShareGPT conversations.
#include <algorithm>
#include <numeric>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "base/find_file.h"
#include "data/builder.h"
#include "data/messages.h"
#include "data/numpy_order.h"
#include "data/picture_chat.h"
#include "rows/data_files.h"
#include "rows/split.h"

namespace automodel::data {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

class ChatBuilder final : public RowBuilder {
 public:
  ChatBuilder(BuilderParts& parts, ChatOptions options, std::unique_ptr<const ChatFormat> chat)
      : RowBuilder(parts), options_(options), chat_(std::move(chat)) {}

  std::optional<BuiltRow> build(std::int64_t index) override {
    const auto row = read(index);
    return chat_->build(openai_messages(row), tools_of(row), options_);
  }

 private:
  ChatOptions options_;
  std::unique_ptr<const ChatFormat> chat_;
};

class PictureChatBuilder final : public RowBuilder {
 public:
  PictureChatBuilder(BuilderParts& parts, RowLengths lengths, std::unique_ptr<const PictureChat> chat)
      : RowBuilder(parts), lengths_(lengths), chat_(std::move(chat)) {}

  std::optional<BuiltRow> build(std::int64_t index) override {
    const auto row = read(index);
    return chat_->build(picture_messages(row), tools_of(row), RowPictures(table(), index, messages_column(row)),
                        lengths_);
  }

 private:
  RowLengths lengths_;
  std::unique_ptr<const PictureChat> chat_;
};

class ChatLoading {
 public:
  ChatLoading(const config::ChatDatasetConfig& config, BuilderParts& parts, Diagnostics& problems)
      : config_(config), parts_(parts), problems_(problems) {}

  bool run() {
    const auto& paths = config_.path_or_dataset_id().paths;
    std::error_code error;
    const auto local = paths.size() == 1 ? find_beside(paths[0], parts_.context.recipe_folder) : std::nullopt;
    const bool table = local && (fs::is_directory(*local, error) || rows::reader_of(local->native()) == "parquet");
    if (paths.size() == 1 && (table || (!local && !looks_like_file(paths[0])))) return load_split(paths[0]);
    return load_texts(paths);
  }

 private:
  /// A name that cannot be a repository's, or that has a data file extension.
  static bool looks_like_file(const std::string& path) {
    return path.starts_with('.') || path.starts_with('/') || !rows::reader_of(path).empty();
  }

  /// Text files are not shuffled.
  bool load_texts(const std::vector<std::string>& paths) {
    if (!load_named_files(parts_, paths, "path_or_dataset_id", config_.split(), problems_)) return false;
    return keep_valid();
  }

  /// An unreadable row is an error, or is skipped if the recipe says so.
  bool keep_valid() {
    std::vector<std::int64_t> good;
    ordered_json row;
    const std::int64_t size = parts_.rows.rows->size();
    for (std::int64_t i = 0; i < size; ++i) {
      try {
        parts_.rows.rows->read(i, row);
        good.push_back(i);
      } catch (const rows::RowError& error) {
        if (config_.skip_invalid_samples()) continue;
        problems_.add("bad-row", parts_.context.key)
            .says(error.what())
            .hint("skip_invalid_samples: true leaves such lines out")
            .at(error.where);
        return false;
      }
    }
    if (static_cast<std::int64_t>(good.size()) < size)
      parts_.rows.rows = rows::select(std::move(parts_.rows.rows), good);
    return true;
  }

  /// A slice by row numbers is taken after shuffling, so that train[:N] and train[N:] are disjoint; other slices
  /// before.
  bool load_split(const std::string& path) {
    const std::string split = config_.split().value_or("train");
    const auto parsed = rows::parse_split(split);
    std::optional<rows::SplitPart> late;
    if (parsed.problem.empty() && parsed.parts.size() == 1) {
      const auto& part = parsed.parts[0];
      if (part.sliced() && !part.percent && part.from.value_or(0) >= 0 && part.to.value_or(0) >= 0) late = part;
    }
    if (!load_repository(parts_, path, "path_or_dataset_id", late ? late->name : split, config_.name(), {}, problems_))
      return false;
    const std::int64_t size = parts_.rows.rows->size();
    const auto& seed = config_.shuffle_seed();
    if (!seed && !late) return true;
    std::vector<std::int64_t> order(static_cast<std::size_t>(size));
    std::iota(order.begin(), order.end(), 0);
    if (seed) order = numpy_permutation(static_cast<std::uint64_t>(*seed), size);
    if (late) {
      const std::int64_t from = std::min(late->from.value_or(0), size),
                         to = std::clamp(late->to.value_or(size), from, size);
      order.assign(order.begin() + from, order.begin() + to);
    }
    if (order.empty()) {
      problems_.add("empty-data", parts_.context.key + ".split")
          .says("split '{}' has no rows: there are {}", split, size)
          .hint("a slice lies within the split");
      return false;
    }
    parts_.rows.rows = rows::select(std::move(parts_.rows.rows), order);
    parts_.rows.selection += fmt::format("then {} {}", split, seed.value_or(-1));
    return true;
  }

  const config::ChatDatasetConfig& config_;
  BuilderParts& parts_;
  Diagnostics& problems_;
};

}  // namespace

std::unique_ptr<Builder> make_chat_builder(const config::ChatDatasetConfig& config, BuilderParts& parts,
                                           Diagnostics& problems) {
  const std::size_t before = problems.size();
  const std::string& key = parts.context.key;
  ChatOptions options{.lengths = row_lengths(config, key, problems),
                      .mask_reasoning = config.mask_reasoning_content(),
                      .last_labels = config.mask_history()};
  auto chat = needed_chat(parts, config.chat_template(), "conversations", problems);
  if (!ChatLoading(config, parts, problems).run() || problems.size() > before) return nullptr;
  parts.extra = chat->text();
  if (parts.context.pictures) {
    if (options.mask_reasoning || options.last_labels) {
      problems.add("unsupported-option", key + (options.mask_reasoning ? ".mask_reasoning_content" : ".mask_history"))
          .says("labels of conversations with pictures are all answers")
          .hint("remove it");
      return nullptr;
    }
    auto pictures = PictureChat::open(parts.tokenizer, std::move(chat), *parts.context.pictures, config.answer_prefix(),
                                      key, problems);
    if (!pictures) return nullptr;
    return std::make_unique<PictureChatBuilder>(parts, options.lengths, std::move(pictures));
  }
  if (!config.answer_prefix().empty()) {
    problems.add("unsupported-option", key + ".answer_prefix")
        .says("answer_prefix is for rows with pictures, and the model has no vision tower")
        .hint("remove it; a chat_template can put text before answers");
    return nullptr;
  }
  return std::make_unique<ChatBuilder>(parts, options, std::move(chat));
}

}  // namespace automodel::data
