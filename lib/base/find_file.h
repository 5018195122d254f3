// Where a recipe's relative path leads.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

namespace automodel {

/// `path` where it is there: as it stands if it is absolute, else in `folder` (the recipe's), else in the working
/// directory. Nothing where it is nowhere, or empty.
std::optional<std::filesystem::path> find_beside(const std::string& path, const std::filesystem::path& folder);

}  // namespace automodel
