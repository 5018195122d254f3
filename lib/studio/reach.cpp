#include "studio/reach.h"

#include <algorithm>
#include <system_error>

#include <glob.h>

namespace automodel::studio {
namespace {

namespace fs = std::filesystem;

/// The files that a name or pattern stands for.
std::vector<fs::path> files_of(const fs::path& pattern) {
  glob_t found{};
  std::vector<fs::path> out;
  if (glob(pattern.c_str(), 0, nullptr, &found) == 0) out.assign(found.gl_pathv, found.gl_pathv + found.gl_pathc);
  globfree(&found);
  std::error_code error;
  if (fs::exists(pattern, error)) out.push_back(pattern);  // brackets may be part of a name
  return out;
}

}  // namespace

Reach::Reach(const std::vector<std::string>& named) {
  for (const auto& each : named) {
    std::error_code error;
    if (auto path = fs::canonical(each, error); !error) roots_.push_back(std::move(path));
  }
}

bool Reach::holds(const fs::path& path) const {
  std::error_code error;
  const auto place = fs::canonical(path, error);
  if (error) return false;
  return std::any_of(roots_.begin(), roots_.end(), [&](const fs::path& root) {
    return std::mismatch(root.begin(), root.end(), place.begin(), place.end()).first == root.end();
  });
}

std::string Reach::stray_text(const config::Value& value, const fs::path& recipe) const {
  if (const auto* list = value.list())
    for (const auto& item : *list)
      if (auto stray = stray_text(item, recipe); !stray.empty()) return stray;
  if (const auto* map = value.map())
    for (const auto& [key, item] : *map)
      if (auto stray = stray_text(item, recipe); !stray.empty()) return stray;
  const auto* text = value.string();
  if (text == nullptr || text->empty()) return "";
  const fs::path path(*text);
  const bool leaves = path.is_absolute() || text->starts_with('~') || text->find('$') != std::string::npos ||
                      std::find(path.begin(), path.end(), "..") != path.end();
  if (leaves) return *text;
  for (const auto& folder : {recipe.parent_path(), fs::path()})
    for (const auto& file : files_of(folder / path))
      if (!holds(file)) return *text;
  return "";
}

}  // namespace automodel::studio
