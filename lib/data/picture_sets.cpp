// Sets for models that take pictures, as NeMo AutoModel's recipes name them: one question about one picture, with its
// answer; conversations without pictures; random pictures and words.
#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "base/random.h"
#include "data/builder.h"
#include "data/messages.h"
#include "data/picture_chat.h"
#include "data/python_json.h"
#include "rows/bounded_json.h"
#include "tokenizer/unicode.h"

namespace automodel::data {
namespace {

using nlohmann::ordered_json;

constexpr const char* kDescribe = "Describe this image.";

/// What a set's rows hold. Source: make_medpix_dataset and its neighbours in NeMo AutoModel 0.7.
struct PictureSet {
  std::string picture;        ///< its column
  std::string question = {};  ///< its column; empty: the prompt is the question of every row
  std::string prompt = {};
  std::string answer = {};  ///< its column
  bool tagged = false;      ///< the answer is JSON, of which Donut's tags are made
  /// Whether bytes are turned by their Exif tag: as datasets decodes a column of pictures, but not where the bytes
  /// themselves are opened.
  bool upright = true;
};

ordered_json turn(const char* role, ordered_json content) {
  return {{"role", role}, {"content", std::move(content)}};
}
ordered_json text_part(std::string text) {
  return {{"type", "text"}, {"text", std::move(text)}};
}

class PictureSetBuilder final : public RowBuilder {
 public:
  PictureSetBuilder(BuilderParts& parts, PictureSet set, RowLengths lengths, std::unique_ptr<const PictureChat> chat)
      : RowBuilder(parts),
        set_(std::move(set)),
        lengths_(lengths),
        chat_(std::move(chat)),
        draws_(parts.context.seed, parts.context.key + ".gt_parses") {}

  std::optional<BuiltRow> build(std::int64_t index) override {
    const auto row = read(index);
    const auto picture = row.find(set_.picture);
    if (picture == row.end())
      throw RowRefused(fmt::format("there is no column '{}' among {}", set_.picture, column_names(row)));
    const auto& question = set_.question.empty() ? set_.prompt : text_cell(row, set_.question);
    const auto& answer = text_cell(row, set_.answer);
    const auto messages = ordered_json::array(
        {turn("user", ordered_json::array({{{"type", "image"}, {"image", *picture}}, text_part(question)})),
         turn("assistant", ordered_json::array({text_part(set_.tagged ? tagged(answer, index) : answer)}))});
    return chat_->build(messages, {}, RowPictures(table(), index, set_.picture, set_.upright), lengths_);
  }

 private:
  /// The answer that is `gt_parse`, or one of `gt_parses`.
  std::string tagged(const std::string& text, std::int64_t index) const {
    const auto truth = rows::json_in_text(text);
    if (!truth.is_object()) throw RowRefused(fmt::format("column '{}' is not a JSON object", set_.answer));
    if (const auto many = truth.find("gt_parses"); many != truth.end()) {
      if (!many->is_array() || many->empty())
        throw RowRefused(fmt::format("'gt_parses' in column '{}' is not a list of answers", set_.answer));
      return tagged_text((*many)[draws_.below(static_cast<std::uint64_t>(index), many->size())]);
    }
    const auto one = truth.find("gt_parse");
    if (one == truth.end() || !one->is_object())
      throw RowRefused(fmt::format("'gt_parse' in column '{}' is not an object", set_.answer));
    return tagged_text(*one);
  }

  PictureSet set_;
  RowLengths lengths_;
  std::unique_ptr<const PictureChat> chat_;
  RandomStream draws_;
};

/// As Python's strip().
std::string_view stripped(std::string_view text) {
  const auto is_space = [](char32_t point) { return tokenizer::is_space(point) || (point >= 0x1C && point <= 0x1F); };
  while (!text.empty()) {
    const auto first = tokenizer::code_point_at(text, 0);
    if (!is_space(first.value)) break;
    text.remove_prefix(first.bytes);
  }
  while (!text.empty()) {
    const auto last = tokenizer::last_code_point(text);
    if (!is_space(tokenizer::code_point_at(text, last).value)) break;
    text.remove_suffix(text.size() - last);
  }
  return text;
}

/// Whether `text` has the word, in small letters, at `at`, in letters of any case.
bool has_word(std::string_view text, std::size_t at, std::string_view word) {
  return text.size() - at >= word.size() && std::ranges::equal(text.substr(at, word.size()), word, [](char a, char b) {
           return a == b || (a >= 'A' && a <= 'Z' && a + ('a' - 'A') == b);
         });
}

/// What a user says, in the parts between the marks of pictures and films, which these rows do not have.
ordered_json parts_between_marks(std::string_view text) {
  ordered_json out = ordered_json::array();
  const auto add = [&](std::string_view part) {
    part = stripped(part);
    if (!part.empty()) out.push_back(text_part(std::string(part)));
  };
  std::size_t begin = 0, at = 0;
  while (at < text.size()) {
    const std::size_t length = has_word(text, at, "<image>") || has_word(text, at, "<video>") ? 7 : 0;
    if (length > 0) {
      add(text.substr(begin, at - begin));
      begin = at + length;
    }
    at += std::max<std::size_t>(length, 1);
  }
  add(text.substr(begin));
  if (out.empty()) out.push_back(text_part(""));
  return out;
}

/// The messages of users, assistants and the system; others are left out. Source: make_tulu3_dataset in NeMo AutoModel
/// 0.7. Throws RowRefused.
ordered_json text_messages(const ordered_json& row) {
  const auto messages = row.find("messages");
  if (messages == row.end() || !messages->is_array())
    throw RowRefused(fmt::format("there is no list 'messages' among {}", column_names(row)));
  for (const char* media : {"images", "videos"})
    if (const auto found = row.find(media); found != row.end() && found->is_array() && !found->empty())
      throw RowRefused(fmt::format("the row has '{}'; _target_: chat reads conversations with pictures", media));
  ordered_json out = ordered_json::array();
  for (std::size_t i = 0; i < messages->size(); ++i) {
    const auto& message = (*messages)[i];
    if (!message.is_object()) throw RowRefused(fmt::format("messages[{}] is not a message", i));
    const auto role = message.value("role", ordered_json());
    const bool user = role == "user";
    if (!user && role != "assistant" && role != "system") continue;
    const auto content = message.value("content", ordered_json(""));
    if (!content.is_string()) throw RowRefused(fmt::format("the content of messages[{}] is not text", i));
    const auto& text = content.get_ref<const std::string&>();
    out.push_back(
        {{"role", role}, {"content", user ? parts_between_marks(text) : ordered_json::array({text_part(text)})}});
  }
  if (out.empty()) throw RowRefused("no message is of a user, an assistant or the system");
  return out;
}

class TextBuilder final : public RowBuilder {
 public:
  TextBuilder(BuilderParts& parts, RowLengths lengths, std::unique_ptr<const PictureChat> chat)
      : RowBuilder(parts), lengths_(lengths), chat_(std::move(chat)) {}

  std::optional<BuiltRow> build(std::int64_t index) override {
    return chat_->build(text_messages(read(index)), {}, RowPictures(table(), index, "messages"), lengths_);
  }

 private:
  RowLengths lengths_;
  std::unique_ptr<const PictureChat> chat_;
};

/// What random answers are made of; most are one token in large vocabularies.
constexpr std::array<std::string_view, 64> kWords = {
    "a",     "about", "after", "air",   "all",   "and",  "are",   "at",    "back",  "big",   "black", "blue",  "boat",
    "book",  "by",    "car",   "child", "city",  "cold", "day",   "dog",   "door",  "down",  "early", "eye",   "far",
    "field", "fire",  "five",  "from",  "glass", "gold", "green", "hand",  "heavy", "hill",  "home",  "horse", "is",
    "it",    "kind",  "lake",  "large", "line",  "man",  "moon",  "near",  "night", "of",    "old",   "on",    "open",
    "paper", "red",   "road",  "round", "small", "snow", "stone", "table", "two",   "white", "with",  "year"};

class MockPicturesBuilder final : public Builder {
 public:
  MockPicturesBuilder(const config::MockPicturesDatasetConfig& config, const BuilderParts& parts, RowLengths lengths,
                      std::unique_ptr<const PictureChat> chat)
      : config_(config),
        tokenizer_(parts.tokenizer),
        lengths_(lengths),
        chat_(std::move(chat)),
        draws_(seed(), "words") {}

  std::int64_t size() const override { return config_.num_samples(); }
  SourceLocation where(std::int64_t /*index*/) const override { return {}; }
  std::int32_t fill() const override { return tokenizer_->fill(); }

  std::optional<BuiltRow> build(std::int64_t index) override {
    ordered_json question = ordered_json::array();
    for (int i = 0; i < config_.num_images_per_sample(); ++i)
      question.push_back({{"type", "image"}, {"image", {{"bytes", i}}}});
    question.push_back(text_part(config_.prompt()));
    const auto messages = ordered_json::array(
        {turn("user", std::move(question)), turn("assistant", ordered_json::array({text_part(answer(index))}))});
    const auto [width, height] = config_.image_size();
    return chat_->build(messages, {}, RowPictures(seed(), {width, height}, index), lengths_);
  }

 private:
  std::uint64_t seed() const { return static_cast<std::uint64_t>(config_.seed()); }
  std::string answer(std::int64_t index) const {
    const auto row = static_cast<std::size_t>(index);
    if (const auto& texts = config_.responses()) return (*texts)[row % texts->size()];
    const auto words = static_cast<std::size_t>(config_.max_length().value_or(256));
    std::string out;
    for (std::size_t i = 0; i < words; ++i) {
      if (i > 0) out += ' ';
      out += kWords[draws_.below(row * words + i, kWords.size())];
    }
    return out;
  }

  config::MockPicturesDatasetConfig config_;
  std::shared_ptr<const RowTokenizer> tokenizer_;
  RowLengths lengths_;
  std::unique_ptr<const PictureChat> chat_;
  RandomStream draws_;
};

/// What makes a set's rows; without `chat` after problems.
struct Ready {
  RowLengths lengths = {};
  std::unique_ptr<const PictureChat> chat = {};
};

/// `load` loads the rows, and returns false after problems. Adds unsupported-model if the model takes no pictures.
template <class Config, class Load>
Ready prepare(const Config& config, const std::string& what, BuilderParts& parts, const Load& load,
              Diagnostics& problems) {
  const std::size_t before = problems.size();
  const std::string& key = parts.context.key;
  if (!parts.context.pictures) {
    problems.add("unsupported-model", key + "._target_")
        .says("rows of '{}' are for models that take pictures, and this one has no vision tower", Config::targets[0])
        .hint("a model with a vision tower (docs/models.md), in a folder that is here");
    return {};
  }
  const auto lengths = row_lengths(config, key, problems);
  auto chat = needed_chat(parts, config.chat_template(), what, problems);
  if (!load() || problems.size() > before) return {};
  return {lengths, PictureChat::open(parts.tokenizer, std::move(chat), *parts.context.pictures, config.answer_prefix(),
                                     key, problems)};
}

/// Of `split`, the first rows if there is a limit.
template <class Config>
std::unique_ptr<Builder> make(const Config& config, const std::string& split, std::optional<int> limit, PictureSet set,
                              BuilderParts& parts, Diagnostics& problems) {
  auto ready = prepare(
      config, "questions about pictures", parts,
      [&] { return load_repository(parts, config.path_or_dataset(), "path_or_dataset", split, {}, {}, problems); },
      problems);
  if (!ready.chat) return nullptr;
  if (limit) keep_first(parts, std::min<std::int64_t>(*limit, parts.rows.rows->size()));
  return std::make_unique<PictureSetBuilder>(parts, std::move(set), ready.lengths, std::move(ready.chat));
}

}  // namespace

std::unique_ptr<Builder> make_medpix_builder(const config::MedPixDatasetConfig& config, BuilderParts& parts,
                                             Diagnostics& problems) {
  return make(config, config.split().value_or("train"), {},
              {.picture = "image_id", .question = "question", .answer = "answer", .upright = false}, parts, problems);
}

std::unique_ptr<Builder> make_rdr_builder(const config::RdrDatasetConfig& config, BuilderParts& parts,
                                          Diagnostics& problems) {
  return make(config, config.split().value_or("train"), {}, {.picture = "image", .prompt = kDescribe, .answer = "text"},
              parts, problems);
}

std::unique_ptr<Builder> make_cord_builder(const config::CordDatasetConfig& config, BuilderParts& parts,
                                           Diagnostics& problems) {
  const std::string split = config.split().value_or("train");
  const auto& limit = config.limit_dataset_samples();
  if (limit && limited(split, limit) == split) {
    problems.add("bad-value", parts.context.key + ".limit_dataset_samples")
        .says("split '{}' takes a part already", split)
        .hint("one of the two: a split such as train[:{}], or limit_dataset_samples", *limit);
    return nullptr;
  }
  return make(config, limited(split, limit), {},
              {.picture = "image", .prompt = kDescribe, .answer = "ground_truth", .tagged = true}, parts, problems);
}

std::unique_ptr<Builder> make_catalogue_builder(const config::CatalogueDatasetConfig& config, BuilderParts& parts,
                                                Diagnostics& problems) {
  return make(config, config.split().value_or("train"), config.limit_dataset_samples(),
              {.picture = "product_image",
               .prompt = "What product category does this item belong to?",
               .answer = "ground_truth_category",
               .upright = false},
              parts, problems);
}

std::unique_ptr<Builder> make_tulu3_builder(const config::Tulu3DatasetConfig& config, BuilderParts& parts,
                                            Diagnostics& problems) {
  auto ready = prepare(
      config, "conversations", parts,
      [&] {
        return load_repository(parts, config.path_or_dataset(), "path_or_dataset", config.split().value_or("train"), {},
                               {}, problems);
      },
      problems);
  if (!ready.chat) return nullptr;
  parts.extra = ready.chat->chat().text();
  return std::make_unique<TextBuilder>(parts, ready.lengths, std::move(ready.chat));
}

std::unique_ptr<Builder> make_mock_pictures_builder(const config::MockPicturesDatasetConfig& config,
                                                    BuilderParts& parts, Diagnostics& problems) {
  auto ready = prepare(
      config, "questions about pictures", parts, [] { return true; }, problems);
  if (!ready.chat) return nullptr;
  return std::make_unique<MockPicturesBuilder>(config, parts, ready.lengths, std::move(ready.chat));
}

}  // namespace automodel::data
