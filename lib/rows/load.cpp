#include "rows/load.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <system_error>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "base/file_text.h"
#include "base/find_file.h"
#include "base/hub.h"
#include "base/json_depth.h"
#include "rows/csv_rows.h"
#include "rows/data_files.h"
#include "rows/json_rows.h"
#include "rows/split.h"
#include "rows/table_rows.h"

namespace automodel::rows {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

/// A card or a list of files; nothing if there is none. Throws RowError for what is too large or too deep.
std::optional<std::string> read_text(const fs::path& path) {
  std::error_code error;
  if (!fs::is_regular_file(path, error)) return std::nullopt;
  auto file = file_text(path, kMostDescription);
  if (file.too_large) throw RowError(file.problem, {path.native(), 0, 0});
  if (!file.problem.empty()) return std::nullopt;
  if (path.extension() == ".json" && nesting_of(file.text) > kDeepestJson)
    throw RowError(fmt::format("it nests more than {} levels", kDeepestJson), {path.native(), 0, 0});
  return std::move(file.text);
}

/// The same file may be matched by several patterns of a card, and is then read as often (as in datasets), but a list
/// of a million entries for one file is somebody's joke.
constexpr std::size_t kMostMentions = 16;

bool is_compressed(const fs::path& file) {
  return file.extension() == ".gz" || file.extension() == ".zst";
}

std::unique_ptr<Rows> open_file(const fs::path& file, Diagnostics& problems) {
  const std::string reader = reader_of(file.filename().native());
  if (reader == "parquet") return table_rows(file, TableKind::kParquet, problems);
  if (reader == "arrow") return table_rows(file, TableKind::kArrow, problems);
  if (reader != "json" && reader != "csv") {
    problems.add("bad-value")
        .says("'{}' is of no kind that is read", file.native())
        .hint(
            "Parquet, Arrow, JSON, JSON lines, CSV and TSV files are read, texts also with .gz or .zst; plain text is "
            "read by "
            "_target_: text")
        .at({file.native(), 0, 0});
    return nullptr;
  }
  std::shared_ptr<const Text> text;
  try {
    text = is_compressed(file) ? inflate_text(file, problems) : map_text(file);
  } catch (const std::system_error& error) {
    problems.add("missing-file")
        .says("'{}' cannot be read: {}", file.native(),
              error.code() == std::errc::invalid_argument ? "it is not a regular file" : error.code().message())
        .hint("check the file and its permissions")
        .at({file.native(), 0, 0});
  }
  if (!text) return nullptr;
  const bool tabs = (is_compressed(file) ? file.stem() : file.filename()).extension() == ".tsv";
  return reader == "json" ? json_rows(std::move(text), file.native(), problems)
                          : csv_rows(std::move(text), tabs ? '\t' : ',', file.native(), problems);
}

/// The files of every split, in order of the splits.
using SplitPaths = std::vector<std::pair<std::string, std::vector<fs::path>>>;

class Loading {
 public:
  Loading(const LoadRequest& request, Diagnostics& problems) : request_(request), problems_(problems) {}

  /// `files`: what the request names, if that is clear.
  std::optional<LoadedRows> run(const std::vector<fs::path>& files = {}) {
    const auto parsed = parse_split(request_.split);
    if (!parsed.problem.empty())
      return refuse("bad-value", parsed.problem, "write name, name[from:to], name[10%:20%], or several with +",
                    request_.split_key);
    try {
      auto splits = files.empty() ? find() : SplitPaths{{split_of(files, parsed.parts), files}};
      if (!splits) return std::nullopt;
      if (files.empty()) check_mentions(*splits);
      return take(*splits, parsed.parts);
    } catch (const RowError& error) {
      problems_.add("bad-table", request_.path_key)
          .says("{}", error.what())
          .hint("SECURITY.md lists the limits")
          .at(error.where);
      return std::nullopt;
    }
  }

 private:
  /// The split that named files are: train, or the one that is asked for if all their names hold it (validation.jsonl).
  static std::string split_of(const std::vector<fs::path>& files, const std::vector<SplitPart>& parts) {
    const auto& name = parts.front().name;
    const bool named = std::ranges::all_of(
        files, [&](const fs::path& file) { return file.filename().native().find(name) != std::string::npos; });
    return named && !name.empty() ? name : "train";
  }

  static void check_mentions(const SplitPaths& splits) {
    std::set<std::string> names;
    for (const auto& [split, files] : splits) {
      if (!names.insert(split).second) throw RowError(fmt::format("the split '{}' is named twice", split), {});
      std::map<fs::path, std::size_t> mentions;
      for (const auto& file : files)
        if (++mentions[file] > kMostMentions)
          throw RowError(fmt::format("the file is named more than {} times", kMostMentions), {file.native(), 0, 0});
    }
  }

  std::nullopt_t refuse(ProblemId id, std::string message, std::string help, const std::string& key) {
    problems_.add(id, key).says(std::move(message)).hint(std::move(help));
    return std::nullopt;
  }

  std::optional<SplitPaths> find() {
    if (const auto local = find_beside(request_.path, request_.recipe_folder)) {
      std::error_code error;
      if (fs::is_directory(*local, error)) return of_folder(*local);
      return SplitPaths{{"train", {*local}}};
    }
    if (const fs::path snapshot = find_snapshot(HubKind::kDataset, request_.path, request_.revision);
        !snapshot.empty()) {
      Diagnostics own;
      if (auto found = of_snapshot(snapshot, own)) return found;
      // An interrupted download; a copy that load_dataset prepared from a complete one serves as well.
      if (auto prepared = of_prepared()) return prepared;
      keyed(std::move(own));
      return std::nullopt;
    }
    if (auto prepared = of_prepared()) return prepared;
    if (said_) return std::nullopt;
    return not_found();
  }

  void keyed(Diagnostics own) {
    for (auto& problem : own) {
      if (problem.where.line == 0) problem.where = {};
      if (problem.key.empty()) problem.key = request_.path_key;
      problems_.push_back(std::move(problem));
    }
  }

  std::nullopt_t not_found() {
    std::string help = fmt::format("looked for a folder in {} and in the working directory",
                                   request_.recipe_folder.empty() ? "." : request_.recipe_folder.native());
    const auto near = near_name(request_.recipe_folder / request_.path);
    help += near;
    if (const auto download = download_advice(request_.path, request_.revision, HubKind::kDataset);
        near.empty() && !download.empty())
      help +=
          fmt::format(", for revision {} in the hub cache {} and for a prepared copy in {}; nothing is downloaded{}",
                      request_.revision.value_or("main"), hub_cache().native(), prepared_cache().native(), download);
    return refuse("dataset-not-found", fmt::format("there is no data set '{}' here", request_.path), help,
                  request_.path_key);
  }

  std::optional<SplitPaths> of_snapshot(const fs::path& folder, Diagnostics& problems) {
    auto card = read_text(folder / "README.md");
    const auto chosen = choose_data_files(list_files(folder), card, request_.name, folder.native(), problems);
    if (!chosen) return std::nullopt;
    SplitPaths out;
    for (const auto& [split, files] : chosen->splits) {
      auto& paths = out.emplace_back(split, std::vector<fs::path>()).second;
      for (const auto& file : files) paths.push_back(folder / file);
    }
    return out;
  }

  std::optional<SplitPaths> of_folder(const fs::path& folder) {
    if (const auto dict = read_text(folder / "dataset_dict.json")) {
      const auto document = json::parse(*dict, nullptr, false);
      SplitPaths out;
      std::set<std::string> seen;
      if (document.is_object() && document.contains("splits") && document["splits"].is_array())
        for (const auto& name : document["splits"])
          if (name.is_string() && is_plain(name.get<std::string>()) && seen.insert(name.get<std::string>()).second)
            if (auto part = of_saved(folder / name.get<std::string>())) out.emplace_back(name, std::move(*part));
      if (!out.empty()) return out;
    } else if (auto part = of_saved(folder)) {
      return SplitPaths{{"", std::move(*part)}};
    }
    Diagnostics own;
    auto out = of_snapshot(folder, own);
    keyed(std::move(own));
    return out;
  }

  /// Whether a name that a file gives is that of something in the same folder.
  static bool is_plain(const fs::path& name) { return !name.has_parent_path() && name != ".." && name != "."; }

  /// The Arrow files of a folder that `save_to_disk` wrote.
  std::optional<std::vector<fs::path>> of_saved(const fs::path& folder) {
    const auto state = read_text(folder / "state.json");
    const auto document = state ? json::parse(*state, nullptr, false) : json();
    if (!document.is_object() || !document.contains("_data_files") || !document["_data_files"].is_array())
      return std::nullopt;
    std::vector<fs::path> out;
    for (const auto& item : document["_data_files"]) {
      const auto name = item.is_object() ? item.value("filename", json()) : json();
      if (!name.is_string() || !is_plain(name.get<std::string>())) return std::nullopt;
      out.push_back(folder / name.get<std::string>());
    }
    return out;
  }

  std::optional<SplitPaths> of_prepared() {
    auto folders = find_prepared(request_.path);
    if (folders.empty()) return std::nullopt;
    std::vector<std::string> configs;
    const fs::path* chosen = nullptr;
    for (const auto& folder : folders) {
      const std::string config = folder.parent_path().parent_path().filename().native();
      if (std::find(configs.begin(), configs.end(), config) == configs.end()) configs.push_back(config);
      const bool wanted = !request_.name || config == *request_.name || config.starts_with(*request_.name + "-");
      const bool same = !request_.revision || folder.filename() == *request_.revision || request_.revision == "main" ||
                        request_.revision->starts_with("refs/");
      if (wanted && same && chosen == nullptr) chosen = &folder;
    }
    if (chosen == nullptr || (!request_.name && configs.size() > 1)) {
      said_ = true;
      return refuse("bad-value",
                    chosen != nullptr ? fmt::format("'{}' is prepared in several configurations", request_.path)
                                      : fmt::format("'{}' has no such configuration or revision", request_.path),
                    fmt::format("name: one of {}", fmt::join(configs, ", ")), request_.path_key);
    }
    return arrow_files(*chosen);
  }

  std::optional<SplitPaths> arrow_files(const fs::path& folder) {
    const auto info = json::parse(read_text(folder / "dataset_info.json").value_or(""), nullptr, false);
    const auto splits = info.is_object() ? info.value("splits", json()) : json();
    const auto here = list_files(folder);
    SplitPaths out;
    if (splits.is_object())
      for (const auto& [split, facts] : splits.items()) {
        // "name-split.arrow", or "name-split-00000-of-00002.arrow" if there are several.
        auto& files = out.emplace_back(split, std::vector<fs::path>()).second;
        const std::string whole = "-" + split + ".arrow", shard = "-" + split + "-";
        for (const auto& file : here) {
          if (!file.ends_with(".arrow") || file.starts_with("cache-")) continue;
          const std::size_t at = file.rfind(shard);
          const bool numbered = at != std::string::npos && file.size() - at == shard.size() + 20 &&
                                file.substr(at + shard.size() + 5, 4) == "-of-";
          if (file.ends_with(whole) || numbered) files.push_back(folder / file);
        }
        const auto lengths = facts.is_object() ? facts.value("shard_lengths", json()) : json();
        const std::size_t expected = lengths.is_array() && !lengths.empty() ? lengths.size() : 1;
        if (files.size() != expected) {
          said_ = true;
          return refuse(
              "dataset-not-found",
              fmt::format("split '{}' in '{}' has {} of {} files", split, folder.native(), files.size(), expected),
              "the cache is incomplete: load the data set again", request_.path_key);
        }
      }
    if (out.empty()) return std::nullopt;
    return out;
  }

  std::optional<LoadedRows> take(const SplitPaths& splits, const std::vector<SplitPart>& parts) {
    LoadedRows out;
    std::map<std::string, std::pair<std::int64_t, std::int64_t>> opened;  // split -> (first row, row count) in `tables`
    std::vector<std::unique_ptr<Rows>> tables;
    std::vector<RowSpan> order;
    std::int64_t total = 0, taken = 0;
    for (const auto& part : parts) {
      bool found = false;
      for (const auto& [split, files] : splits) {
        // A folder that save_to_disk wrote for a single split does not record the split's name.
        if (split != part.name && part.name != "all" && !split.empty()) continue;
        found = true;
        if (!opened.contains(split)) {
          auto loaded = load_files(files, problems_);
          if (!loaded) return std::nullopt;
          const std::int64_t count = loaded->rows->size();
          opened[split] = {total, count};
          total += count;
          tables.push_back(std::move(loaded->rows));
          out.files.insert(out.files.end(), files.begin(), files.end());
        }
        const auto [first, count] = opened[split];
        std::string problem;
        const RowRange range = range_of(part, count, problem);
        if (!problem.empty()) return refuse("bad-value", problem, "use row numbers, or (closest)", request_.split_key);
        order.push_back({first + range.from, first + range.to});
        taken += std::max<std::int64_t>(range.to - range.from, 0);
        out.selection += fmt::format("{}..{} ", first + range.from, first + range.to);
      }
      if (!found) return unknown_split(part.name, splits);
    }
    std::erase_if(order, [](const RowSpan& span) { return span.to <= span.from; });
    if (taken == 0)
      return refuse("empty-data", fmt::format("split '{}' of '{}' has no rows", request_.split, request_.path),
                    total == 0 ? "its files are empty" : fmt::format("the split has {} rows in all", total),
                    request_.split_key);
    out.rows = concatenate(std::move(tables));
    std::int64_t next = 0;
    const bool all = taken == total && std::ranges::all_of(order, [&](const RowSpan& span) {
                       return std::exchange(next, span.to) == span.from;
                     });
    if (!all) out.rows = select(std::move(out.rows), std::move(order));
    return out;
  }

  std::nullopt_t unknown_split(const std::string& name, const SplitPaths& splits) {
    std::vector<std::string> names;
    for (const auto& split : splits) names.push_back(split.first);
    return refuse("bad-value", fmt::format("'{}' has no split '{}'", request_.path, name),
                  fmt::format("one of {}", fmt::join(names, ", ")), request_.split_key);
  }

  const LoadRequest& request_;
  Diagnostics& problems_;
  bool said_ = false;  ///< a problem already explains why there is nothing
};

}  // namespace

std::optional<LoadedRows> load_rows(const LoadRequest& request, Diagnostics& problems) {
  return Loading(request, problems).run();
}

std::optional<LoadedRows> load_split_of(const std::vector<fs::path>& files, const LoadRequest& request,
                                        Diagnostics& problems) {
  return Loading(request, problems).run(files);
}

std::optional<LoadedRows> load_files(const std::vector<fs::path>& files, Diagnostics& problems) {
  LoadedRows out;
  std::vector<std::unique_ptr<Rows>> parts;
  for (const auto& file : files) {
    auto part = open_file(file, problems);
    if (!part) return std::nullopt;
    parts.push_back(std::move(part));
  }
  out.files = files;
  out.rows = concatenate(std::move(parts));
  return out;
}

}  // namespace automodel::rows
