// Resolves relative paths in a recipe.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

namespace automodel {

/// An absolute `path` if it exists; a relative one is looked up in `folder` (the recipe's) and then in the working
/// directory. Empty if not found or if `path` is empty.
std::optional<std::filesystem::path> find_beside(const std::string& path, const std::filesystem::path& folder);

/// "; did you mean 'NAME'?", to end a hint with: the name in the folder of `path` that is nearest to its last part,
/// which does not exist; empty if none is near.
std::string near_name(const std::filesystem::path& path);

/// `path`, or the nearest folder above it that exists: where it would be created.
std::filesystem::path nearest_folder(const std::filesystem::path& path);

/// Free bytes of the disk that `path` is on, or would be. Empty if its file system does not say: those without a size,
/// such as the kernel's own and some network ones, report 0 in all.
std::optional<double> free_bytes(const std::filesystem::path& path);

}  // namespace automodel
