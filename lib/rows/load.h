// Loads the rows that a recipe names: a local folder or files, or a repository in the Hugging Face cache.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "rows/rows.h"

namespace automodel::rows {

struct LoadRequest {
  std::string path = {};                     ///< a folder, a file, or the name of a repository
  std::optional<std::string> name = {};      ///< configuration
  std::optional<std::string> revision = {};  ///< main if absent
  std::string split = "train";
  std::filesystem::path recipe_folder = ".";  ///< tried first for relative paths, then the working directory
  std::string path_key = {};                  ///< recipe keys for diagnostics
  std::string split_key = {};
};

struct LoadedRows {
  std::unique_ptr<Rows> rows = {};
  std::vector<std::filesystem::path> files = {};  ///< the files that the rows come from, in order
  std::string selection = {};                     ///< which of their rows; defines the data, with the files' content
};

/// Looks for a local path (also one that `save_to_disk` wrote), then a snapshot in the hub cache, then data that
/// `load_dataset` has prepared. Null after adding problems: `dataset-not-found` with the places searched, `bad-value`
/// for an unknown split or configuration, `empty-data`, and those of the readers.
std::optional<LoadedRows> load_rows(const LoadRequest& request, Diagnostics& problems);

/// The rows that `request.split` chooses of `files`, which together are the split train, or the one that is asked for
/// if all their names hold its name.
std::optional<LoadedRows> load_split_of(const std::vector<std::filesystem::path>& files, const LoadRequest& request,
                                        Diagnostics& problems);

/// All rows of `files`, each read according to its name: .parquet, .arrow, .csv, .tsv, .json, .jsonl, .ndjson, and the
/// text formats with .gz or .zst appended.
std::optional<LoadedRows> load_files(const std::vector<std::filesystem::path>& files, Diagnostics& problems);

}  // namespace automodel::rows
