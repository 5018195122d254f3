#include "studio/reach.h"

#include <algorithm>
#include <system_error>

#include <fnmatch.h>

namespace automodel::studio {
namespace {

namespace fs = std::filesystem;

/// Whether the text leads somewhere else than below the folders that relative names are looked up in.
bool leaves(const std::string& text) {
  const fs::path path(text);
  return path.is_absolute() || text.starts_with('~') || text.find('$') != std::string::npos ||
         std::find(path.begin(), path.end(), "..") != path.end();
}

/// The list or map that a scalar's text may be read as: a quoted list is one for most keys.
config::Node nested(const config::Node& scalar) {
  const auto first = scalar.text.find_first_not_of(' ');
  if (first == std::string::npos || (scalar.text[first] != '[' && scalar.text[first] != '{')) return {.entries = {}};
  Diagnostics unread;
  auto out = config::parse_yaml(scalar.text, scalar.where.file, unread);
  return out.kind == config::Node::Kind::kScalar ? config::Node{.entries = {}} : out;
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

bool Reach::strays(const fs::path& written, const fs::path& base) const {
  const auto is_stray = [&](const fs::path& file) {
    std::error_code error;
    return fs::exists(fs::symlink_status(file, error)) && !holds(file);
  };
  const fs::path whole = base / written;
  if (is_stray(whole)) return true;  // brackets may be part of a name
  for (const char* suffix : {".idx", ".bin"})
    if (is_stray(whole.native() + suffix) || is_stray(fs::path(whole).replace_extension(suffix))) return true;
  // A pattern reaches what lies below the entries that its first part with a wildcard stands for: "**" for all of them.
  fs::path folder = base;
  for (const auto& part : written) {
    if (part.native().find_first_of("*?[") == std::string::npos) {
      folder /= part;
      continue;
    }
    std::error_code error;
    for (fs::directory_iterator entry(folder.empty() ? "." : folder, error); !error && entry != fs::end(entry);
         entry.increment(error))
      if (fnmatch(part.c_str(), entry->path().filename().c_str(), 0) == 0 && is_stray(entry->path())) return true;
    break;
  }
  return false;
}

std::string Reach::stray_text(const config::Node& node, const fs::path& recipe) const {
  for (const auto& item : node.items)
    if (auto stray = stray_text(item, recipe); !stray.empty()) return stray;
  for (const auto& entry : node.entries) {
    if (leaves(entry.key)) return entry.key;
    if (auto stray = stray_text(entry.value, recipe); !stray.empty()) return stray;
  }
  if (node.kind != config::Node::Kind::kScalar || node.text.empty()) return "";
  if (leaves(node.text) || strays(node.text, recipe.parent_path()) || strays(node.text, "")) return node.text;
  return stray_text(nested(node), recipe);
}

}  // namespace automodel::studio
