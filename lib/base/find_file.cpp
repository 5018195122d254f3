#include "base/find_file.h"

#include <algorithm>
#include <system_error>
#include <vector>

#include <fmt/format.h>

#include "base/spelling.h"

namespace automodel {

namespace fs = std::filesystem;

std::optional<fs::path> find_beside(const std::string& path, const fs::path& folder) {
  std::error_code error;
  if (path.empty()) return std::nullopt;
  for (const auto& found : {folder / path, fs::path(path)})
    if (fs::exists(found, error)) return found;
  return std::nullopt;
}

std::string near_name(const fs::path& path) {
  std::error_code error;
  std::vector<std::string> names;
  for (fs::directory_iterator it(path.has_parent_path() ? path.parent_path() : ".", error), end; !error && it != end;
       it.increment(error))
    if (it->path().filename() != path.filename()) names.push_back(it->path().filename().native());
  std::ranges::sort(names);
  const auto near = nearest(path.filename().native(), {names.begin(), names.end()});
  return near.empty() ? "" : fmt::format("; did you mean '{}'?", near);
}

std::filesystem::path nearest_folder(const std::filesystem::path& path) {
  std::error_code error;
  auto out = std::filesystem::absolute(path, error).lexically_normal();
  while (!out.empty() && out.has_parent_path() && out != out.root_path() && !std::filesystem::exists(out, error))
    out = out.parent_path();
  return out;
}

std::optional<double> free_bytes(const fs::path& path) {
  std::error_code error;
  const auto space = fs::space(nearest_folder(path), error);
  if (error || space.capacity == 0) return std::nullopt;
  return static_cast<double>(space.available);
}

}  // namespace automodel
