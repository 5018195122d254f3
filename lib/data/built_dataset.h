// Data sets whose rows a builder makes, kept as tokens.
#pragma once

#include <memory>

#include "data/builder.h"
#include "data/open_dataset.h"

namespace automodel::data {

/// What is common to the sections of such data sets.
struct BuiltSettings {
  config::TokenizerSource tokenizer;
  config::Value section;  ///< all of it: the name of the cache's file depends on it
  std::string_view kind;
  int max_bad_rows;
  bool cache;
  std::optional<std::string> cache_dir;
};

using MakeBuilder = std::unique_ptr<Builder> (*)(const void* config, BuilderParts& parts, Diagnostics& problems);

/// Null after problems: those of the tokenizer and of the builder; `bad-row`, `sequence-too-long` and
/// `token-out-of-range` with file and line, where there are more than max_bad_rows; `empty-data` where no row is left
/// or none has a label. Where the context collects rejected rows, only a set without any good row is refused.
std::unique_ptr<Dataset> open_built(const BuiltSettings& settings, const void* config, MakeBuilder make,
                                    const DatasetContext& context, Diagnostics& problems);

template <class Config, auto make>
std::unique_ptr<Dataset> open_rows(const Config& config, const DatasetContext& context, Diagnostics& problems) {
  const BuiltSettings settings{config.tokenizer(),    config::to_dict(config), Config::targets[0],
                               config.max_bad_rows(), config.cache(),          config.cache_dir()};
  return open_built(
      settings, &config,
      [](const void* section, BuilderParts& parts, Diagnostics& own) {
        return make(*static_cast<const Config*>(section), parts, own);
      },
      context, problems);
}

}  // namespace automodel::data
