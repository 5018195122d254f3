#include "base/find_file.h"

#include <system_error>

namespace automodel {

namespace fs = std::filesystem;

std::optional<fs::path> find_beside(const std::string& path, const fs::path& folder) {
  std::error_code error;
  if (path.empty()) return std::nullopt;
  for (const auto& found : {folder / path, fs::path(path)})
    if (fs::exists(found, error)) return found;
  return std::nullopt;
}

}  // namespace automodel
