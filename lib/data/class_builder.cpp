// Tables of texts, or pairs of texts, with a class.
#include <string>
#include <utility>
#include <vector>

#include "data/builder.h"
#include "data/class_rows.h"

namespace automodel::data {
namespace {

class ClassBuilder final : public RowBuilder {
 public:
  ClassBuilder(BuilderParts& parts, std::vector<std::string> columns, std::optional<int> max_length)
      : RowBuilder(parts),
        columns_(std::move(columns)),
        limit_(max_length ? std::optional<std::int64_t>(*max_length) : parts.context.context_length),
        classes_(parts.context.classes),
        pad_(pad_of(parts)) {}

  static std::int32_t pad_of(const BuilderParts& parts) {
    return parts.context.pad_token.value_or(parts.tokenizer->fill());
  }

  std::optional<BuiltRow> build(std::int64_t index) override {
    const auto row = read(index);
    const auto label = row.find("label");
    if (label == row.end() || !label->is_number_integer()) throw RowRefused("column 'label' is not a number");
    const auto value = label->get<std::int64_t>();
    if (const auto problem = check_class(value, classes_)) throw RowRefused(problem->reason + "; " + problem->help);
    EncodeOptions options{.limit = limit_};
    if (columns_.size() > 1) options.second = text_cell(row, columns_[1]);
    Sample sample{.input_ids = tokenizer().encode(text_cell(row, columns_[0]), options).ids};
    label_last_token(sample, static_cast<std::int32_t>(value), pad_);
    const auto size = static_cast<std::int64_t>(sample.input_ids.size());
    return BuiltRow{std::move(sample.input_ids), std::move(sample.labels), size};
  }

 private:
  std::vector<std::string> columns_;
  std::optional<std::int64_t> limit_;
  int classes_;
  std::int32_t pad_;
};

std::unique_ptr<Builder> make(const config::ClassSetFields& config, const std::string& path,
                              const std::optional<std::string>& name, std::vector<std::string> columns,
                              BuilderParts& parts, Diagnostics& problems) {
  const auto split = limited(config.split().value_or("train"), config.num_samples_limit());
  if (!load_repository(parts, path, "path_or_dataset", split, name, {}, problems)) return nullptr;
  parts.extra = "classes 2 " + std::to_string(parts.context.classes) + " " +
                std::to_string(ClassBuilder::pad_of(parts)) + " " +
                std::to_string(parts.context.context_length.value_or(0));
  return std::make_unique<ClassBuilder>(parts, std::move(columns), config.max_length());
}

}  // namespace

std::unique_ptr<Builder> make_imdb_builder(const config::ImdbDatasetConfig& config, BuilderParts& parts,
                                           Diagnostics& problems) {
  return make(config, config.path_or_dataset(), {}, {"text"}, parts, problems);
}

std::unique_ptr<Builder> make_yelp_builder(const config::YelpDatasetConfig& config, BuilderParts& parts,
                                           Diagnostics& problems) {
  return make(config, config.path_or_dataset(), {}, {"text"}, parts, problems);
}

std::unique_ptr<Builder> make_mrpc_builder(const config::MrpcDatasetConfig& config, BuilderParts& parts,
                                           Diagnostics& problems) {
  return make(config, config.path_or_dataset(), config.name(), {"sentence1", "sentence2"}, parts, problems);
}

}  // namespace automodel::data
