#include "data/source_files.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <set>
#include <string_view>
#include <system_error>
#include <utility>

#include <fmt/format.h>
#include <fnmatch.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file_text.h"
#include "base/find_file.h"

namespace automodel::data {
namespace {

namespace fs = std::filesystem;

constexpr std::array<std::string_view, 7> kSkippedFolders = {"build",       "dist", "target",    "node_modules",
                                                             "__pycache__", "venv", "CMakeFiles"};
/// Binary formats, even if a file happens not to have a NUL near its start.
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

/// What inspecting a file once tells.
struct Look {
  int error = 0;  ///< errno if it cannot be read
  std::int64_t size = 0;
  bool binary = false;
  bool compressed = false;
};

/// Whether a file begins as gzip, Zstandard, xz, bzip2 and zip files do.
bool begins_compressed(std::string_view head) {
  using namespace std::string_view_literals;
  constexpr std::array kBegins = {"\x1f\x8b"sv, "\x28\xb5\x2f\xfd"sv,
                                  "\xfd"
                                  "7zXZ\0"sv,
                                  "BZh"sv, "PK\x03\x04"sv};
  return std::ranges::any_of(kBegins, [&](std::string_view each) { return head.starts_with(each); });
}

Look look_at(const fs::path& path) {
  Look out;
  const int file = open_regular(path);
  struct stat status = {};
  std::array<char, kProbe> head;
  const ssize_t count = file < 0 ? -1 : ::read(file, head.data(), head.size());
  if (count < 0 || ::fstat(file, &status) != 0) out.error = errno;
  if (file >= 0) ::close(file);
  if (out.error != 0) return out;
  out.size = status.st_size;
  out.compressed = begins_compressed({head.data(), static_cast<std::size_t>(count)});
  out.binary = std::memchr(head.data(), 0, static_cast<std::size_t>(count)) != nullptr;
  return out;
}

/// Whether the name alone qualifies a file; for text, the content decides as well.
bool is_wanted_name(const fs::path& path, Wanted wanted) {
  const fs::path extension = path.extension();
  switch (wanted) {
    case Wanted::kText: return !contains(kBinarySuffixes, extension.native());
    case Wanted::kJsonLines: return contains(kJsonLinesSuffixes, extension.native());
    case Wanted::kBinary: return extension == ".bin";
    case Wanted::kIndex: return extension == ".idx";
  }
  return false;
}

std::vector<fs::directory_entry> sorted_entries(const fs::path& folder) {
  std::vector<fs::directory_entry> entries;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) entries.push_back(*it);
  std::sort(entries.begin(), entries.end(),
            [](const auto& a, const auto& b) { return a.path().native() < b.path().native(); });
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
      return take(base / path, fs::canonical(base / path, error), look_at(base / path));
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
  /// Takes a file that the user named, or a wanted one that a folder or glob led to. `canonical` is empty if it has
  /// none.
  void take(const fs::path& path, const fs::path& canonical, const Look& look) {
    if (!canonical.empty() && !seen_.insert(canonical.native()).second) return;
    if (look.error != 0) {
      problems_.add("missing-file", key_)
          .says("'{}' cannot be read: {}", path.native(), std::strerror(look.error))
          .hint("check the file and its permissions");
      return;
    }
    if (look.compressed) {
      problems_.add("bad-value", key_)
          .says("'{}' is compressed: its bytes are not text", path.native())
          .hint("decompress it; chat, column_mapped and squad read .jsonl.gz and .jsonl.zst");
      return;
    }
    found_.files.push_back({path, look.size});
  }

  /// An entry of a folder or glob. `folder` is the canonical path of its parent: only links need a lookup of their own.
  void consider(const fs::directory_entry& entry, const fs::path& folder) {
    std::error_code error;
    const fs::path& path = entry.path();
    if (entry.is_directory(error)) {
      if (!contains(kSkippedFolders, path.filename().native())) walk(path);
    } else if (entry.is_regular_file(error)) {
      const bool named = is_wanted_name(path, wanted_);
      const Look look = named ? look_at(path) : Look{};
      if (!named || (wanted_ == Wanted::kText && look.binary))
        ++found_.skipped;
      else
        take(path, entry.is_symlink(error) || folder.empty() ? fs::canonical(path, error) : folder / path.filename(),
             look);
    }
  }

  void walk(const fs::path& folder) {
    std::error_code error;
    const fs::path canonical = fs::canonical(folder, error);
    if (error || !ancestors_.insert(canonical.native()).second) return;
    for (const auto& entry : sorted_entries(folder))
      if (!is_hidden(entry.path())) consider(entry, canonical);
    ancestors_.erase(canonical.native());
  }

  /// Matches parts[at ...] of a glob below `base`.
  void expand(const fs::path& base, const std::vector<fs::path>& parts, std::size_t at) {
    if (at == parts.size()) return consider(fs::directory_entry(base), {});
    const std::string& part = parts[at].native();
    std::error_code error;
    if (part == "**") {
      if (at + 1 == parts.size()) return consider(fs::directory_entry(base.empty() ? "." : base), {});
      expand(base, parts, at + 1);
      for (const auto& entry : sorted_entries(base.empty() ? "." : base))
        if (!is_hidden(entry.path()) && !contains(kSkippedFolders, entry.path().filename().native()) &&
            entry.is_directory(error) && !entry.is_symlink(error))
          expand(entry.path(), parts, at);
      return;
    }
    if (part.find_first_of("*?[") == std::string::npos) {
      const fs::path next = part.empty() ? base : base / part;
      if (fs::exists(next, error)) expand(next, parts, at + 1);
      return;
    }
    for (const auto& entry : sorted_entries(base.empty() ? "." : base))
      if (fnmatch(part.c_str(), entry.path().filename().c_str(), FNM_PERIOD) == 0 &&
          (at + 1 == parts.size() || entry.is_directory(error)))
        expand(entry.path(), parts, at + 1);
  }

  void report_missing(const std::string& written, const fs::path& path) {
    problems_.add("missing-file", key_)
        .says("there is no file, folder or match for '{}'", written)
        .hint("looked in {} and in the working directory{}", recipe_folder_.empty() ? "." : recipe_folder_.native(),
              near_name(path));
  }

  Wanted wanted_;
  const fs::path& recipe_folder_;
  const std::string& key_;
  Diagnostics& problems_;
  SourceFiles found_;
  std::set<std::string> seen_;       ///< canonical paths of the files taken
  std::set<std::string> ancestors_;  ///< canonical paths of the folders being walked
};

}  // namespace

SourceFiles find_files(const config::PathList& paths, Wanted wanted, const fs::path& recipe_folder,
                       const std::string& key, Diagnostics& problems) {
  if (paths.paths.empty()) {
    problems.add("missing-key", key).says("{} names no file", key).hint("give files, folders or globs");
    return {};
  }
  Finder finder(wanted, recipe_folder, key, problems);
  for (const auto& path : paths.paths) finder.add(path);
  return finder.take_result();
}

}  // namespace automodel::data
