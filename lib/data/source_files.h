// Resolves a recipe's paths to files.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "base/diagnostic.h"
#include "config/data_config.h"

namespace automodel::data {

/// What to take from a folder or a glob. A file named explicitly is always taken.
enum class Wanted {
  kText,       ///< everything that is not binary
  kJsonLines,  ///< .jsonl, .json, .ndjson
  kBinary,     ///< .bin
  kIndex,      ///< .idx
};

struct SourceFiles {
  struct File {
    std::filesystem::path path;
    std::int64_t size = 0;  ///< bytes, at the time it was found
  };
  std::vector<File> files = {};
  std::int64_t skipped = 0;  ///< files in folders and globs that are not of the wanted kind
};

/// Expands files, folders (recursively) and globs (`*`, `?`, `[...]` within a name, `**` for any number of folders). A
/// relative path is resolved against the recipe's folder, then the working directory. The result keeps the order of
/// `paths`; within a folder or a glob, files are sorted bytewise by path, so that every machine agrees. A file reached
/// in several ways counts once, where it is first reached.
///
/// Within folders and globs these are skipped: hidden names (.git, .cache), folders that builds and package managers
/// fill (build, dist, target, node_modules, __pycache__, venv, CMakeFiles), and files that are not of the wanted kind.
/// A file is binary if there is a NUL among its first 8000 bytes (git's rule) or if its suffix is that of a format that
/// is never text. Links are followed; a folder that is its own ancestor is entered once.
///
/// `key` is the dotted recipe key of `paths`. Problems: `missing-key` for an empty list, `missing-file` for a path that
/// does not exist or cannot be read.
SourceFiles find_files(const config::PathList& paths, Wanted wanted, const std::filesystem::path& recipe_folder,
                       const std::string& key, Diagnostics& problems);

}  // namespace automodel::data
