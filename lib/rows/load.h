// The rows that a recipe names: a local folder or files, or a repository in the Hugging Face cache.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "rows/rows.h"

namespace automodel::rows {

struct LoadRequest {
  std::string path = {};                     ///< a folder, or the name of a repository
  std::optional<std::string> name = {};      ///< configuration
  std::optional<std::string> revision = {};  ///< main where it is left out
  std::string split = "train";
  std::filesystem::path recipe_folder = ".";  ///< relative paths are looked for here, then in the working directory
  std::string path_key = {};                  ///< recipe keys for problems
  std::string split_key = {};
};

struct LoadedRows {
  std::unique_ptr<Rows> rows = {};
  std::vector<std::filesystem::path> files = {};  ///< that the rows come from, in order
  std::string selection = {};                     ///< which of their rows; with the files' content all they depend on
};

/// A local folder; else the hub cache's snapshot; else what `load_dataset` has prepared, or `save_to_disk` written.
/// Null after problems: `dataset-not-found` with the places that were looked at, `bad-value` for a split or
/// configuration that is not there, `empty-data`, and those of the readers.
std::optional<LoadedRows> load_rows(const LoadRequest& request, Diagnostics& problems);

/// All rows of files, each read by its name: .parquet, .arrow, .csv, .tsv, .json, .jsonl, .ndjson, and any of the
/// texts with .gz or .zst behind.
std::optional<LoadedRows> load_files(const std::vector<std::filesystem::path>& files, Diagnostics& problems);

}  // namespace automodel::rows
