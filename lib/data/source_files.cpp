#include "data/source_files.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <set>
#include <string_view>
#include <system_error>
#include <utility>

#include <fmt/format.h>
#include <fnmatch.h>

#include "base/spelling.h"

namespace automodel::data {
namespace {

namespace fs = std::filesystem;

constexpr std::array<std::string_view, 7> kSkippedFolders = {"build",       "dist", "target",    "node_modules",
                                                             "__pycache__", "venv", "CMakeFiles"};
/// Formats that are not text although they may begin without a NUL.
constexpr std::array<std::string_view, 21> kBinarySuffixes = {
    ".7z", ".bin", ".bz2", ".gif", ".gz",  ".jar", ".jpeg", ".jpg", ".mp3",         ".mp4", ".npy",
    ".o",  ".pdf", ".png", ".pt",  ".pyc", ".so",  ".tgz",  ".xz",  ".safetensors", ".zip"};
constexpr std::array<std::string_view, 3> kJsonLinesSuffixes = {".jsonl", ".json", ".ndjson"};
constexpr std::size_t kProbe = 8000;

template <std::size_t n>
bool contains(const std::array<std::string_view, n>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

bool is_hidden(const fs::path& path) {
  return path.filename().native().starts_with('.');
}

bool is_binary(const fs::path& path) {
  if (contains(kBinarySuffixes, path.extension().native())) return true;
  std::ifstream file(path, std::ios::binary);
  std::array<char, kProbe> head;
  file.read(head.data(), head.size());
  return std::memchr(head.data(), 0, static_cast<std::size_t>(file.gcount())) != nullptr;
}

bool is_wanted(const fs::path& path, Wanted wanted) {
  switch (wanted) {
    case Wanted::kText: return !is_binary(path);
    case Wanted::kJsonLines: return contains(kJsonLinesSuffixes, path.extension().native());
    case Wanted::kBinary: return path.extension() == ".bin";
    case Wanted::kIndex: return path.extension() == ".idx";
  }
  return false;
}

std::vector<fs::path> sorted_entries(const fs::path& folder) {
  std::vector<fs::path> entries;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error))
    entries.push_back(it->path());
  std::sort(entries.begin(), entries.end(),
            [](const fs::path& a, const fs::path& b) { return a.native() < b.native(); });
  return entries;
}

class Finder {
 public:
  Finder(Wanted wanted, const fs::path& recipe_folder, const std::string& key, Diagnostics& problems)
      : wanted_(wanted), recipe_folder_(recipe_folder), key_(key), problems_(problems) {}

  void add(const std::string& written) {
    const fs::path path(written);
    std::vector<fs::path> bases = {""};
    if (!path.is_absolute()) {
      bases = {recipe_folder_};
      std::error_code error;
      if (!fs::equivalent(recipe_folder_, ".", error)) bases.emplace_back("");
    }
    for (const auto& base : bases) {
      std::error_code error;
      if (!fs::exists(base / path, error)) continue;
      if (fs::is_directory(base / path, error)) return walk(base / path);
      return take(base / path);
    }
    if (written.find_first_of("*?[") != std::string::npos) {
      for (const auto& base : bases) {
        const std::size_t before = found_.files.size() + static_cast<std::size_t>(found_.skipped);
        expand(base, {path.begin(), path.end()}, 0);
        if (found_.files.size() + static_cast<std::size_t>(found_.skipped) > before) return;
      }
    }
    report_missing(written, bases.front() / path);
  }

  SourceFiles take_result() { return std::move(found_); }

 private:
  /// A file that the user named, or that a folder or glob led to and that is wanted.
  void take(const fs::path& path) {
    std::error_code error;
    const fs::path canonical = fs::canonical(path, error);
    if (!error && !seen_.insert(canonical.native()).second) return;
    const auto size = fs::file_size(path, error);
    const bool readable = !error && std::ifstream(path, std::ios::binary).good();
    if (!readable) {
      const std::string reason = error ? error.message() : std::strerror(errno);
      problems_.push_back({"missing-file",
                           fmt::format("'{}' cannot be read: {}", path.native(), reason),
                           "check the file and its permissions",
                           {},
                           key_});
      return;
    }
    found_.files.push_back({path, static_cast<std::int64_t>(size)});
  }

  /// An entry of a folder or glob.
  void consider(const fs::path& path) {
    std::error_code error;
    if (fs::is_directory(path, error)) {
      if (!contains(kSkippedFolders, path.filename().native())) walk(path);
    } else if (fs::is_regular_file(path, error)) {
      if (is_wanted(path, wanted_))
        take(path);
      else
        ++found_.skipped;
    }
  }

  void walk(const fs::path& folder) {
    std::error_code error;
    const fs::path canonical = fs::canonical(folder, error);
    if (error || !ancestors_.insert(canonical.native()).second) return;
    for (const auto& entry : sorted_entries(folder))
      if (!is_hidden(entry)) consider(entry);
    ancestors_.erase(canonical.native());
  }

  /// Matches parts[at ...] of a glob below `base`.
  void expand(const fs::path& base, const std::vector<fs::path>& parts, std::size_t at) {
    if (at == parts.size()) return consider(base);
    const std::string& part = parts[at].native();
    std::error_code error;
    if (part == "**") {
      if (at + 1 == parts.size()) return consider(base.empty() ? "." : base);
      expand(base, parts, at + 1);
      for (const auto& entry : sorted_entries(base.empty() ? "." : base))
        if (!is_hidden(entry) && !contains(kSkippedFolders, entry.filename().native()) &&
            fs::is_directory(entry, error) && !fs::is_symlink(entry, error))
          expand(entry, parts, at);
      return;
    }
    if (part.find_first_of("*?[") == std::string::npos) {
      const fs::path next = part.empty() ? base : base / part;
      if (fs::exists(next, error)) expand(next, parts, at + 1);
      return;
    }
    for (const auto& entry : sorted_entries(base.empty() ? "." : base))
      if (fnmatch(part.c_str(), entry.filename().c_str(), FNM_PERIOD) == 0 &&
          (at + 1 == parts.size() || fs::is_directory(entry, error)))
        expand(entry, parts, at + 1);
  }

  void report_missing(const std::string& written, const fs::path& path) {
    std::string help = fmt::format("looked in {} and in the working directory",
                                   recipe_folder_.empty() ? "." : recipe_folder_.native());
    std::vector<std::string> names;
    for (const auto& entry : sorted_entries(path.has_parent_path() ? path.parent_path() : "."))
      names.push_back(entry.filename().native());
    const std::string_view near = nearest(path.filename().native(), {names.begin(), names.end()});
    if (!near.empty()) help += fmt::format("; did you mean '{}'?", near);
    problems_.push_back({"missing-file",
                         fmt::format("there is no file, folder or match for '{}'", written),
                         std::move(help),
                         {},
                         key_});
  }

  Wanted wanted_;
  const fs::path& recipe_folder_;
  const std::string& key_;
  Diagnostics& problems_;
  SourceFiles found_;
  std::set<std::string> seen_;       ///< canonical paths of the files taken
  std::set<std::string> ancestors_;  ///< canonical paths of the folders that are being walked
};

}  // namespace

SourceFiles find_files(const config::PathList& paths, Wanted wanted, const fs::path& recipe_folder,
                       const std::string& key, Diagnostics& problems) {
  if (paths.paths.empty()) {
    problems.push_back({"missing-key", fmt::format("{} names no file", key), "give files, folders or globs", {}, key});
    return {};
  }
  Finder finder(wanted, recipe_folder, key, problems);
  for (const auto& path : paths.paths) finder.add(path);
  return finder.take_result();
}

}  // namespace automodel::data
