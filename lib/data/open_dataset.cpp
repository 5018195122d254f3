#include "data/open_dataset.h"

#include <array>
#include <utility>
#include <variant>

#include <fmt/format.h>

#include "data/jsonl_dataset.h"
#include "data/megatron_dataset.h"
#include "data/mock_dataset.h"
#include "data/nanogpt_dataset.h"
#include "data/text_dataset.h"
#include "data/tokens_dataset.h"

namespace automodel::data {
namespace {

template <auto open_typed, class Config>
std::unique_ptr<Dataset> open_as(const config::DatasetConfig& config, const DatasetContext& context,
                                 Diagnostics& problems) {
  return open_typed(std::get<Config>(config), context, problems);
}

template <class Config, auto open_typed>
constexpr DatasetKind row() {
  return {Config::targets[0], Config::kDoc, open_as<open_typed, Config>};
}

/// A row for each alternative, in their order; a kind that is missing here does not compile.
constexpr std::array kKinds = {
    row<config::TextDatasetConfig, open_text>(),         row<config::JsonlDatasetConfig, open_jsonl>(),
    row<config::TokensDatasetConfig, open_tokens>(),     row<config::NanogptDatasetConfig, open_nanogpt>(),
    row<config::MegatronDatasetConfig, open_megatron>(), row<config::MockDatasetConfig, open_mock>(),
};
static_assert(kKinds.size() == std::variant_size_v<config::DatasetConfig>);

}  // namespace

std::span<const DatasetKind> dataset_kinds() {
  return kKinds;
}

std::unique_ptr<Dataset> open_dataset(const config::DatasetConfig& config, const DatasetContext& context,
                                      Diagnostics& problems) {
  return kKinds[config.index()].open(config, context, problems);
}

Diagnostic sequence_too_long(std::int64_t length, std::int64_t allowed, std::string key) {
  return {"sequence-too-long",
          fmt::format("sequences of {} tokens do not fit the model, which takes {}", length, allowed),
          fmt::format("at most {}", allowed),
          {},
          std::move(key)};
}

}  // namespace automodel::data
