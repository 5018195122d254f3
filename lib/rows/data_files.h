// Which files of a folder hold which split, as Hugging Face's datasets decides: the card's `configs`, else names.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/diagnostic.h"

namespace automodel::rows {

/// Files are paths relative to the folder, with / between names.
struct DataFiles {
  std::string reader = {};  ///< json, csv, parquet, arrow, text
  std::string config = {};
  std::vector<std::pair<std::string, std::vector<std::string>>> splits = {};  ///< in their order
};

/// Decides from names alone. `card` is the text of README.md (and of .huggingface.yaml, which goes before it), `name`
/// the configuration asked for. Null after one problem (`dataset-not-found`, `bad-value`), whose place is `folder`.
std::optional<DataFiles> choose_data_files(std::vector<std::string> files, const std::optional<std::string>& card,
                                           const std::optional<std::string>& name, const std::string& folder,
                                           Diagnostics& problems);

/// All files below a folder, links followed, sorted byte by byte.
std::vector<std::string> list_files(const std::filesystem::path& folder);

/// The reader of a file by its name ("x.jsonl.gz": json); "" for none.
std::string reader_of(std::string_view file);

}  // namespace automodel::rows
