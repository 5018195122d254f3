// Datasets whose rows are made by a builder and kept as tokens.
#pragma once

#include <memory>

#include "data/builder.h"
#include "data/open_dataset.h"

namespace automodel::data {

/// Settings common to the sections of such datasets.
struct BuiltSettings {
  config::TokenizerSource tokenizer;
  config::Value section;  ///< the whole section: part of the cache file's name
  std::string_view kind;
  int max_bad_rows;
  bool cache = false;
  std::optional<std::string> cache_dir = {};
};

using MakeBuilder = std::unique_ptr<Builder> (*)(const void* config, BuilderParts& parts, Diagnostics& problems);

/// Null after adding problems: those of the tokenizer and of the builder; `bad-row`, `sequence-too-long` and
/// `token-out-of-range` with file and line if there are more than max_bad_rows; `empty-data` if no row is left or none
/// has a label. If the context collects rejected rows, only a dataset without a single good row is rejected.
std::unique_ptr<Dataset> open_built(const BuiltSettings& settings, const void* config, MakeBuilder make,
                                    const DatasetContext& context, Diagnostics& problems);

template <class Config, auto make>
std::unique_ptr<Dataset> open_rows(const Config& config, const DatasetContext& context, Diagnostics& problems) {
  BuiltSettings settings{config.tokenizer(), config::to_dict(config), Config::targets[0], config.max_bad_rows()};
  if constexpr (requires { config.cache(); }) {
    settings.cache = config.cache();
    settings.cache_dir = config.cache_dir();
  }
  return open_built(
      settings, &config,
      [](const void* section, BuilderParts& parts, Diagnostics& own) {
        return make(*static_cast<const Config*>(section), parts, own);
      },
      context, problems);
}

}  // namespace automodel::data
