#include "data/open_dataset.h"

#include <array>
#include <utility>
#include <variant>

#include <fmt/format.h>

#include "data/built_dataset.h"
#include "data/jsonl_dataset.h"
#include "data/megatron_dataset.h"
#include "data/mixture_dataset.h"
#include "data/mock_dataset.h"
#include "data/nanogpt_dataset.h"
#include "data/sentences_dataset.h"
#include "data/text_dataset.h"
#include "data/tokenizer.h"
#include "data/tokens_dataset.h"

namespace automodel::data {
namespace {

/// Opens the config::DatasetConfig alternative that has the same index as this entry in kKinds.
using Open = std::unique_ptr<Dataset> (*)(const config::DatasetConfig& config, const DatasetContext& context,
                                          Diagnostics& problems);

template <auto open_typed, class Config>
std::unique_ptr<Dataset> open_as(const config::DatasetConfig& config, const DatasetContext& context,
                                 Diagnostics& problems) {
  return open_typed(std::get<Config>(config), context, problems);
}

template <class Config, auto open_typed>
constexpr Open row() {
  return open_as<open_typed, Config>;
}

/// Data that only plans know of; make_plan rejects training with it, so this is never reached that way.
template <auto& kTargets>
std::unique_ptr<Dataset> open_foreign(const config::ForeignDatasetConfig<kTargets>&, const DatasetContext&,
                                      Diagnostics& problems) {
  problems.add("unsupported", "dataset._target_")
      .says("'{}' is not read here", kTargets[0])
      .hint("'automodel schema' lists the kinds of data that are");
  return nullptr;
}
template <auto& kTargets>
constexpr Open foreign() {
  return row<config::ForeignDatasetConfig<kTargets>, open_foreign<kTargets>>();
}

template <class Config, auto make>
constexpr Open rows_of() {
  return row<Config, open_rows<Config, make>>();
}

/// One entry per alternative, in order; a missing kind does not compile.
constexpr std::array kKinds = {
    row<config::TextDatasetConfig, open_text>(),
    row<config::JsonlDatasetConfig, open_jsonl>(),
    row<config::TokensDatasetConfig, open_tokens>(),
    row<config::NanogptDatasetConfig, open_nanogpt>(),
    row<config::MegatronDatasetConfig, open_megatron>(),
    row<config::MockDatasetConfig, open_mock>(),
    row<config::SentencesDatasetConfig, open_sentences>(),
    rows_of<config::SquadDatasetConfig, make_squad_builder>(),
    rows_of<config::HellaSwagDatasetConfig, make_hellaswag_builder>(),
    rows_of<config::ColumnMappedDatasetConfig, make_column_mapped_builder>(),
    rows_of<config::StreamedColumnsDatasetConfig, make_streamed_columns_builder>(),
    rows_of<config::ChatDatasetConfig, make_chat_builder>(),
    rows_of<config::AgentChatDatasetConfig, make_agent_builder>(),
    rows_of<config::XlamDatasetConfig, make_xlam_builder>(),
    rows_of<config::ImdbDatasetConfig, make_imdb_builder>(),
    rows_of<config::YelpDatasetConfig, make_yelp_builder>(),
    rows_of<config::MrpcDatasetConfig, make_mrpc_builder>(),
    rows_of<config::MedPixDatasetConfig, make_medpix_builder>(),
    rows_of<config::RdrDatasetConfig, make_rdr_builder>(),
    rows_of<config::CordDatasetConfig, make_cord_builder>(),
    rows_of<config::CatalogueDatasetConfig, make_catalogue_builder>(),
    rows_of<config::Tulu3DatasetConfig, make_tulu3_builder>(),
    rows_of<config::MockPicturesDatasetConfig, make_mock_pictures_builder>(),
    foreign<config::kOtherData>(),
    row<config::MixtureDatasetConfig, open_mixture>(),
};
static_assert(kKinds.size() == std::variant_size_v<config::DatasetConfig>);

}  // namespace

std::unique_ptr<Dataset> open_dataset(const config::DatasetConfig& config, const DatasetContext& context,
                                      Diagnostics& problems) {
  if (!context.rows && !text_choice(config).has_text) return nullptr;  // it names nothing else
  return kKinds[config.index()](config, context, problems);
}

std::vector<std::string> source_names(const config::DatasetConfig& config) {
  std::vector<std::string> out;
  const auto add = [&](const std::vector<std::string>& names) { out.insert(out.end(), names.begin(), names.end()); };
  config::each_part(config, [&](const auto& section) {
    if constexpr (requires { section.paths().paths; })
      add(section.paths().paths);
    else if constexpr (requires { section.path_or_dataset_id().paths; })
      add(section.path_or_dataset_id().paths);
    else if constexpr (requires { section.path_or_dataset(); })
      add({section.path_or_dataset()});
    else if constexpr (requires { section.dataset_name().has_value(); })
      add(section.dataset_name() ? std::vector<std::string>{*section.dataset_name()} : std::vector<std::string>());
    else if constexpr (requires { section.dataset_name(); })
      add({section.dataset_name()});
  });
  return out;
}

std::optional<std::string> tokenizer_name(const config::DatasetConfig& config, const DatasetContext& context) {
  std::optional<std::string> out;
  config::each_part(config, [&](const auto& section) {
    if (out) return;  // all parts have the same
    if constexpr (requires { section.tokenizer().written; })
      out = section.tokenizer().path.value_or(context.model_folder.native());
    else if constexpr (requires { section.tokenizer()->size(); })
      out = section.tokenizer().value_or(std::is_same_v<decltype(section), const config::TextDatasetConfig&>
                                             ? tokenizer_of_model(context.model_folder)
                                             : context.model_folder.native());
  });
  return out;
}

std::unique_ptr<Tokenizer> open_tokenizer_of(const config::DatasetConfig& config, const DatasetContext& context,
                                             Diagnostics& problems) {
  const auto name = tokenizer_name(config, context).value_or("");
  return name.empty() ? nullptr : open_tokenizer(name, context.recipe_folder, context.key + ".tokenizer", problems);
}

void check_vocabulary(int vocab_size, const DatasetContext& context, Diagnostics& problems) {
  if (!context.vocab_size || vocab_size <= *context.vocab_size) return;
  problems.add("token-out-of-range", context.key + ".vocab_size")
      .says("vocab_size {} is more than the model's {}", vocab_size, *context.vocab_size)
      .hint("vocab_size must be at most {}", *context.vocab_size);
}

void check_tokenizer(int ids, const DatasetContext& context, Diagnostics& problems) {
  if (!context.vocab_size || ids <= *context.vocab_size) return;
  problems.add("token-out-of-range", context.key + ".tokenizer")
      .says("the tokenizer has {} ids, the model's vocabulary {}", ids, *context.vocab_size)
      .hint("the model's vocab_size must be at least {}", ids);
}

Diagnostic sequence_too_long(std::int64_t length, std::int64_t allowed, std::string key) {
  return Diagnostic{"sequence-too-long"}
      .says("sequences of {} tokens do not fit the model, which accepts {}", length, allowed)
      .hint("at most {}", allowed)
      .of(std::move(key));
}

}  // namespace automodel::data
