// Sets of one question about one picture, with its answer: those that NeMo AutoModel's recipes name.
#include <algorithm>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "base/random.h"
#include "data/builder.h"
#include "data/messages.h"
#include "data/picture_chat.h"
#include "data/python_json.h"
#include "rows/bounded_json.h"

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

/// Of `split`, the first rows if there is a limit. Adds unsupported-model if the model takes no pictures.
template <class Config>
std::unique_ptr<Builder> make(const Config& config, const std::string& split, std::optional<int> limit, PictureSet set,
                              BuilderParts& parts, Diagnostics& problems) {
  const std::size_t before = problems.size();
  const std::string& key = parts.context.key;
  if (!parts.context.pictures) {
    problems.add("unsupported-model", key + "._target_")
        .says("rows of '{}' hold pictures, and there is no vision tower to look at them", Config::targets[0])
        .hint("a model with a vision tower (docs/models.md), in a folder that is here");
    return nullptr;
  }
  const auto lengths = row_lengths(config, key, problems);
  auto chat = needed_chat(parts, config.chat_template(), "questions about pictures", problems);
  if (!load_repository(parts, config.path_or_dataset(), "path_or_dataset", split, {}, {}, problems) ||
      problems.size() > before)
    return nullptr;
  if (limit) keep_first(parts, std::min<std::int64_t>(*limit, parts.rows.rows->size()));
  auto pictures = PictureChat::open(parts.tokenizer, std::move(chat), *parts.context.pictures, config.answer_prefix(),
                                    key, problems);
  if (!pictures) return nullptr;
  return std::make_unique<PictureSetBuilder>(parts, std::move(set), lengths, std::move(pictures));
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

}  // namespace automodel::data
