#include "data/mixture_dataset.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <string>

#include <fmt/format.h>

#include "base/bytes.h"
#include "base/random.h"
#include "data/interleaving.h"
#include "data/sampler.h"
#include "data/tokenizer.h"

namespace automodel::data {
namespace {

class Mixture final : public Dataset {
 public:
  Mixture(std::vector<std::unique_ptr<Dataset>> parts, const std::vector<double>& weights,
          const MixtureOptions& options)
      : parts_(std::move(parts)), interleaving_(weights), rows_(options.rows) {
    std::int64_t all = 0;
    const RandomStream seeds(options.seed, "data/mixture");
    for (std::size_t p = 0; p < parts_.size(); ++p) {
      all += parts_[p]->size();
      orders_.push_back(std::make_unique<const Sampler>(
          parts_[p]->size(), SamplerOptions{.shuffle = options.shuffle, .seed = seeds.bits64(p) >> 1}));
    }
    if (rows_ == 0) rows_ = all;
    padding_ = parts_.front()->padding();
    for (const auto& part : parts_) {
      const auto own = part->padding();
      padding_.multiple = std::lcm(padding_.multiple, own.multiple);
      if (own.shortest != padding_.shortest) padding_.shortest = 0;  // a batch is as long as its longest row
    }
  }

  std::int64_t size() const override { return rows_; }
  bool endless() const override { return true; }
  void read(std::int64_t index, Sample& out) const override {
    const auto [rows, row] = source(index);
    out.pictures.clear();
    rows->read(row, out);
  }
  std::int64_t length(std::int64_t index) const override {
    const auto [rows, row] = source(index);
    return rows->length(row);
  }
  void attention_mask(std::int64_t index, std::vector<std::int32_t>& out) const override {
    const auto [rows, row] = source(index);
    rows->attention_mask(row, out);
  }
  std::vector<pictures::PictureMark> pictures(std::int64_t index) const override {
    const auto [rows, row] = source(index);
    return rows->pictures(row);
  }
  StoredPicture stored_picture(std::int64_t index, std::size_t number) const override {
    const auto [rows, row] = source(index);
    return rows->stored_picture(row, number);
  }
  Padding padding() const override { return padding_; }
  std::vector<DatasetShare> parts() const override {
    std::vector<DatasetShare> out;
    for (std::size_t p = 0; p < parts_.size(); ++p) out.push_back({parts_[p].get(), interleaving_.shares()[p]});
    return out;
  }
  std::size_t part_of(std::int64_t index) const override { return interleaving_.at(index).part; }
  std::string summary() const override {
    return fmt::format("mixture: {} data sets, {} rows an epoch", parts_.size(), rows_);
  }

 private:
  std::pair<const Dataset*, std::int64_t> source(std::int64_t index) const {
    const auto [part, count] = interleaving_.at(index);
    const auto& rows = *parts_[part];
    if (rows.endless()) return {&rows, count};  // its epochs differ
    return {&rows, orders_[part]->sample(count / rows.size(), count % rows.size())};
  }

  std::vector<std::unique_ptr<Dataset>> parts_;
  Interleaving interleaving_;
  std::int64_t rows_;
  std::vector<std::unique_ptr<const Sampler>> orders_ = {};
  Padding padding_ = {};
};

/// What names the tokenizer of a part's texts, as a file where there is one; nothing for data that holds ids.
std::optional<std::string> tokenizer_of(const config::DatasetConfig& part, const DatasetContext& context) {
  const auto name = tokenizer_name(part, context);
  if (!name) return name;
  std::error_code error;
  const auto path = tokenizer_path(*name, context.recipe_folder);
  return path.empty() ? *name : std::filesystem::weakly_canonical(path, error).string();
}

}  // namespace

std::unique_ptr<Dataset> mix(std::vector<std::pair<std::unique_ptr<Dataset>, double>> parts,
                             const MixtureOptions& options) {
  std::vector<std::unique_ptr<Dataset>> sets;
  std::vector<double> weights;
  for (auto& [rows, weight] : parts) {
    sets.push_back(std::move(rows));
    weights.push_back(weight);
  }
  return std::make_unique<Mixture>(std::move(sets), weights, options);
}

std::unique_ptr<Dataset> open_mixture(const config::MixtureDatasetConfig& config, const DatasetContext& context,
                                      Diagnostics& problems) {
  const std::size_t before = problems.size();
  const auto& sections = config.datasets();
  std::vector<std::pair<std::unique_ptr<Dataset>, double>> parts;
  std::optional<std::string> first_tokenizer;
  double rows = 0;
  for (std::size_t i = 0; i < sections.size(); ++i) {
    const auto section =
        std::visit([](const auto& part) { return config::DatasetConfig(part); }, *sections[i].dataset());
    DatasetContext own = context;
    own.key = fmt::format("{}.datasets.{}.dataset", context.key, i);
    own.rejected = nullptr;
    const auto tokenizer = tokenizer_of(section, own);
    if (tokenizer && first_tokenizer && *tokenizer != *first_tokenizer)
      problems.add("bad-value", own.key + ".tokenizer")
          .says("part {} of the mixture has the tokenizer '{}', an earlier one '{}'", i, *tokenizer, *first_tokenizer)
          .hint("texts of one model have one tokenizer: write the same for all parts");
    if (!first_tokenizer) first_tokenizer = tokenizer;
    auto opened = open_dataset(section, own, problems);
    if (!opened) continue;
    const double weight =
        sections[i].weight() ? *sections[i].weight() : *sections[i].epochs() * static_cast<double>(opened->size());
    if (!sections[i].weight()) rows += weight;
    if (const auto first = parts.empty() ? opened->padding().id : parts.front().first->padding().id;
        context.classes > 0 && !context.pad_token && opened->padding().id != first)
      problems.add("bad-value", own.key)
          .says(
              "the mixture's first part is padded with token {}, this one with {}: a classifier finds the last token "
              "by one of them",
              first, opened->padding().id)
          .hint("set model.pad_token_id to one of them");
    parts.emplace_back(std::move(opened), weight);
  }
  if (problems.size() > before || !context.rows) return nullptr;
  constexpr double kMostRows = 1e9;
  if (rows > kMostRows) {
    problems.add("bad-value", context.key + ".datasets")
        .says("an epoch of the mixture would have {} rows", format_count(rows))
        .hint("smaller epochs; step_scheduler.num_epochs repeats the mixture");
    return nullptr;
  }
  return mix(std::move(parts), {.seed = config.seed() ? static_cast<std::uint64_t>(*config.seed()) : context.seed,
                                .shuffle = context.shuffle,
                                .rows = rows > 0 ? std::max<std::int64_t>(1, std::llround(rows)) : 0});
}

}  // namespace automodel::data
