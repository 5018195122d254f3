#include "base/hub.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdlib>
#include <fstream>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "base/shell_word.h"

namespace automodel {
namespace {

namespace fs = std::filesystem;

/// Names that predate repository owners, as the hub redirects them.
constexpr std::array<std::pair<std::string_view, std::string_view>, 2> kOldNames = {
    {{"squad", "rajpurkar/squad"}, {"hellaswag", "rowan/hellaswag"}}};

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

fs::path home() {
  if (const auto own = environment("HF_HOME"); !own.empty()) return own;
  if (const auto cache = environment("XDG_CACHE_HOME"); !cache.empty()) return fs::path(cache) / "huggingface";
  return fs::path(environment("HOME")) / ".cache" / "huggingface";
}

std::string lower(std::string text) {
  for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

std::string canonical(const std::string& name) {
  for (const auto& [old, now] : kOldNames)
    if (lower(name) == old) return std::string(now);
  return name;
}

std::vector<fs::path> folders_in(const fs::path& folder) {
  std::vector<fs::path> out;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error))
    if (std::error_code unknown; it->is_directory(unknown)) out.push_back(it->path());
  std::sort(out.begin(), out.end());
  return out;
}

/// The folder called `name`, else the first that differs only in letter case. A search plans hundreds of times, and
/// each plan looks a model's name up in a cache of any size: only folders of that name are asked what they are.
fs::path entry(const fs::path& folder, const std::string& name) {
  std::error_code error;
  if (fs::is_directory(folder / name, error)) return folder / name;
  const auto wanted = lower(name);
  fs::path found;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    const auto& path = it->path();
    if (lower(path.filename().native()) != wanted || (!found.empty() && found < path)) continue;
    if (std::error_code unknown; it->is_directory(unknown)) found = path;
  }
  return found;
}

std::string joined(const std::string& name, const std::string& sign) {
  std::string out;
  for (const char c : name) out += c == '/' ? sign : std::string(1, c);
  return out;
}

/// "FineProofs-SFT" becomes "fine_proofs-sft", as datasets names its folders.
std::string snake_case(const std::string& name) {
  const auto upper = [&](std::size_t i) { return std::isupper(static_cast<unsigned char>(name[i])) != 0; };
  const auto small = [&](std::size_t i) {
    return std::islower(static_cast<unsigned char>(name[i])) != 0 ||
           std::isdigit(static_cast<unsigned char>(name[i])) != 0;
  };
  std::string out;
  for (std::size_t i = 0; i < name.size(); ++i) {
    const bool word = i > 0 && upper(i) &&
                      (small(i - 1) || (upper(i - 1) && i + 1 < name.size() &&
                                        std::islower(static_cast<unsigned char>(name[i + 1])) != 0));
    if (word) out += '_';
    out += static_cast<char>(std::tolower(static_cast<unsigned char>(name[i])));
  }
  return out;
}

}  // namespace

fs::path hub_cache() {
  for (const char* name : {"HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"})
    if (const auto own = environment(name); !own.empty()) return own;
  return home() / "hub";
}

fs::path prepared_cache() {
  const auto own = environment("HF_DATASETS_CACHE");
  return own.empty() ? home() / "datasets" : fs::path(own);
}

bool is_repository_name(std::string_view text) {
  int slashes = 0;
  bool open = true;  // at the start of a part
  for (const char c : text) {
    if (c == '/') {
      if (open || ++slashes > 1) return false;
      open = true;
      continue;
    }
    if (open && c == '.') return false;
    if (std::isalnum(static_cast<unsigned char>(c)) == 0 && c != '_' && c != '.' && c != '-') return false;
    open = false;
  }
  return !open;
}

std::string download_advice(std::string_view name, const std::optional<std::string>& revision, HubKind kind) {
  if (name.find('/') == std::string_view::npos || !is_repository_name(name)) return "";
  return fmt::format(": 'hf download {}{}{}' does that", kind == HubKind::kDataset ? "--repo-type dataset " : "", name,
                     revision ? " --revision " + shell_quoted(*revision) : "");
}

fs::path find_snapshot(HubKind kind, const std::string& name, const std::optional<std::string>& revision,
                       const fs::path& cache) {
  if (!is_repository_name(name)) return {};
  const bool rows = kind == HubKind::kDataset;
  const fs::path root = entry(cache, (rows ? "datasets--" : "models--") + joined(rows ? canonical(name) : name, "--"));
  std::string commit = revision.value_or("main");
  if (root.empty() || commit.find("..") != std::string::npos) return {};
  if (std::ifstream ref(root / "refs" / commit); ref) ref >> commit;
  std::error_code error;
  const fs::path snapshot = root / "snapshots" / commit;
  return !commit.empty() && fs::is_directory(snapshot, error) ? snapshot : fs::path();
}

std::vector<fs::path> find_prepared(const std::string& name) {
  if (!is_repository_name(name)) return {};
  const std::string own = canonical(name);
  const std::size_t slash = own.find('/');
  const std::string folder =
      slash == std::string::npos ? snake_case(own) : own.substr(0, slash) + "___" + snake_case(own.substr(slash + 1));
  const fs::path root = entry(prepared_cache(), folder);
  std::vector<std::pair<fs::file_time_type, fs::path>> found;
  if (!root.empty())
    for (const auto& config : folders_in(root))
      for (const auto& version : folders_in(config))
        for (const auto& commit : folders_in(version))
          if (std::error_code error; fs::is_regular_file(commit / "dataset_info.json", error))
            found.emplace_back(fs::last_write_time(commit, error), commit);
  std::stable_sort(found.begin(), found.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
  std::vector<fs::path> out;
  for (auto& [time, path] : found) out.push_back(std::move(path));
  return out;
}

}  // namespace automodel
