// From a recipe's `dataset:` section to a Dataset: a table with one entry per kind.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/diagnostic.h"
#include "config/data_config.h"
#include "data/dataset.h"
#include "pictures/processor.h"

namespace automodel::data {

/// What a dataset needs besides its own section.
struct DatasetContext {
  std::filesystem::path recipe_folder = ".";  ///< tried first for relative paths, then the working directory
  std::string key = "dataset";                ///< recipe key of the section; also separates random streams
  std::optional<std::int64_t> vocab_size = std::nullopt;  ///< of the model; ids must be below it
  /// Longer sequences are refused: the model has no positions for them.
  std::optional<std::int64_t> max_length = std::nullopt;
  /// The model's context length, to which rows may be cut.
  std::optional<std::int64_t> context_length = std::nullopt;
  int classes = 0;  ///< of a sequence classifier: rows have one label below this; 0: a language model
  std::optional<int> pad_token = std::nullopt;                     ///< of the model
  std::optional<pictures::PictureTokens> pictures = std::nullopt;  ///< of a model that takes pictures
  std::uint64_t seed = 42;
  bool shuffle = false;  ///< a mixture reads its parts in random order; other sets are shuffled by the sampler
  bool quiet = false;    ///< another rank reports warnings
  bool rows = true;      ///< false: only what else a section names is opened and checked, and there is no dataset
  std::filesystem::path model_folder = {};  ///< folder of the model's tokenizer; empty if there is none
  /// If set, collects unusable table rows instead of rejecting the dataset.
  std::vector<std::pair<std::int64_t, Diagnostic>>* rejected = nullptr;
};

/// Opens the section's kind of dataset; null after adding to `problems`, whose keys are dotted recipe keys. Locations
/// are set only for problems in a data file.
std::unique_ptr<Dataset> open_dataset(const config::DatasetConfig& config, const DatasetContext& context,
                                      Diagnostics& problems);

/// The files, folders, globs and repositories that a section names.
std::vector<std::string> source_names(const config::DatasetConfig& config);
/// Name of the tokenizer of a section's texts, or the model's folder; empty if the model has none, null for data that
/// holds ids.
std::optional<std::string> tokenizer_name(const config::DatasetConfig& config, const DatasetContext& context);
class Tokenizer;
/// The tokenizer of a section, or the model's; null for data that needs none, and after problems.
std::unique_ptr<Tokenizer> open_tokenizer_of(const config::DatasetConfig& config, const DatasetContext& context,
                                             Diagnostics& problems);

/// Adds `token-out-of-range` if synthetic tokens below `vocab_size` exceed the model's vocabulary.
void check_vocabulary(int vocab_size, const DatasetContext& context, Diagnostics& problems);
/// Adds `token-out-of-range` if a tokenizer has more ids than the model.
void check_tokenizer(int ids, const DatasetContext& context, Diagnostics& problems);
/// The problem for a row or sequence length beyond what the model allows.
Diagnostic sequence_too_long(std::int64_t length, std::int64_t allowed, std::string key);

}  // namespace automodel::data
