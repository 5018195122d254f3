// From the paths of a recipe to files.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "base/diagnostic.h"
#include "config/data_config.h"

namespace automodel::data {

/// What is taken of a folder or a glob. A file that is named in full is always taken.
enum class Wanted {
  kText,       ///< everything that is not binary
  kJsonLines,  ///< .jsonl, .json, .ndjson
  kBinary,     ///< .bin
  kIndex,      ///< .idx
};

struct SourceFiles {
  struct File {
    std::filesystem::path path;
    std::int64_t size = 0;  ///< bytes, when it was found
  };
  std::vector<File> files = {};
  std::int64_t skipped = 0;  ///< files of folders and globs that are not of the wanted kind
};

/// Expands files, folders (everything below them) and globs (`*`, `?`, `[...]` within a name, `**` for any number of
/// folders). A relative path is looked for in the recipe's folder, then in the working directory. The result keeps the
/// order of `paths`; within a folder or a glob files are sorted by path, byte by byte, so that every machine agrees. A
/// file that is reached in several ways counts once, where it is reached first.
///
/// Of folders and globs are skipped: hidden names (.git, .cache), folders that builds and package managers fill (build,
/// dist, target, node_modules, __pycache__, venv, CMakeFiles), and files that are not of the wanted kind. Binary is a
/// file with a NUL among its first 8000 bytes (git's rule) or with the suffix of a format that is never text. Links are
/// followed; a folder that is its own ancestor is entered once.
///
/// `key` is the dotted recipe key of `paths`. Problems: `missing-key` for no path at all, `missing-file` for a path
/// that leads nowhere or cannot be read.
SourceFiles find_files(const config::PathList& paths, Wanted wanted, const std::filesystem::path& recipe_folder,
                       const std::string& key, Diagnostics& problems);

}  // namespace automodel::data
