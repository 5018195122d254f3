// Which files of a folder belong to which split, by the rules of Hugging Face's datasets: the card's `configs`, else
// file names.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/diagnostic.h"

namespace automodel::rows {

/// Paths are relative to the folder, with / as the separator.
struct DataFiles {
  std::string reader = {};  ///< json, csv, parquet, arrow, text
  std::string config = {};
  std::vector<std::pair<std::string, std::vector<std::string>>> splits = {};  ///< in order
};

/// Decides by names alone, without opening data files. `card` is the text of README.md (and of .huggingface.yaml, which
/// takes precedence), `name` the requested configuration. Null after adding one problem (`dataset-not-found`,
/// `bad-value`, `missing-key`) located at `folder`.
std::optional<DataFiles> choose_data_files(std::vector<std::string> files, const std::optional<std::string>& card,
                                           const std::optional<std::string>& name, const std::string& folder,
                                           Diagnostics& problems);

/// All files below a folder, following links, sorted bytewise.
std::vector<std::string> list_files(const std::filesystem::path& folder);

/// The reader for a file name ("x.jsonl.gz": json); "" if there is none.
std::string reader_of(std::string_view file);

}  // namespace automodel::rows
