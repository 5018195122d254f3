// Resolves relative paths in a recipe.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

namespace automodel {

/// An absolute `path` if it exists; a relative one is looked up in `folder` (the recipe's) and then in the working
/// directory. Empty if not found or if `path` is empty.
std::optional<std::filesystem::path> find_beside(const std::string& path, const std::filesystem::path& folder);

}  // namespace automodel
