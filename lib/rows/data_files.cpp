#include "rows/data_files.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <system_error>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <fnmatch.h>

#include "base/expression.h"
#include "config/node.h"

namespace automodel::rows {
namespace {

namespace fs = std::filesystem;
using Files = std::vector<std::string>;

struct Extension {
  std::string_view suffix;
  std::string_view reader;
};
/// When two readers tie in the number of files, the one listed first wins.
constexpr std::array kExtensions = {Extension{".parquet", "parquet"}, Extension{".geoparquet", "parquet"},
                                    Extension{".gpq", "parquet"},     Extension{".arrow", "arrow"},
                                    Extension{".jsonl", "json"},      Extension{".ndjson", "json"},
                                    Extension{".json", "json"},       Extension{".csv", "csv"},
                                    Extension{".tsv", "csv"},         Extension{".txt", "text"}};

struct SplitWords {
  std::string_view split;
  std::array<std::string_view, 4> words;
};
constexpr std::array kSplitWords = {SplitWords{"train", {"train", "training"}},
                                    SplitWords{"validation", {"validation", "valid", "dev", "val"}},
                                    SplitWords{"test", {"test", "testing", "eval", "evaluation"}}};

constexpr std::array<std::string_view, 6> kNoData = {"README.md",          "config.json",       "dataset_info.json",
                                                     "dataset_infos.json", "dataset_dict.json", "dummy_data.zip"};

Files names_of(std::string_view path) {
  Files out;
  for (std::size_t at = 0; at <= path.size();) {
    const std::size_t end = std::min(path.find('/', at), path.size());
    out.emplace_back(path.substr(at, end - at));
    at = end + 1;
  }
  return out;
}

bool is_special(const std::string& name, bool folder) {
  return name.starts_with('.') || (folder && name.starts_with("__"));
}

/// Hidden names are matched only by a pattern that spells them out.
bool hidden_from(const Files& path, const Files& pattern) {
  for (std::size_t i = 0; i < path.size(); ++i) {
    const bool last = i + 1 == path.size();
    const bool left_out =
        is_special(path[i], !last) || (last && std::find(kNoData.begin(), kNoData.end(), path[i]) != kNoData.end());
    if (left_out && std::find(pattern.begin(), pattern.end(), path[i]) == pattern.end()) return true;
  }
  return false;
}

/// A card's pattern is a stranger's, as are the names: of all "**" only the last is tried again, which finds every
/// match in a time of at most the product of both lengths.
bool matches(const Files& path, const Files& pattern) {
  const bool open = pattern.back() == "**";  // then something below the folder
  const std::size_t parts = pattern.size() + (open ? 1 : 0);
  const auto is_stars = [&](std::size_t q) { return q < pattern.size() && pattern[q] == "**"; };
  std::size_t p = 0, q = 0, after_stars = 0, from = 0;  // after_stars 0: none yet
  while (p < path.size()) {
    if (is_stars(q)) {
      after_stars = ++q;
      from = p;
    } else if (q < parts && (q == pattern.size() || fnmatch(pattern[q].c_str(), path[p].c_str(), 0) == 0)) {
      ++p, ++q;
    } else if (after_stars > 0) {
      q = after_stars;
      p = ++from;
    } else {
      return false;
    }
  }
  while (is_stars(q)) ++q;
  return q == parts;
}

bool is_glob(std::string_view pattern) {
  return pattern.find_first_of("*?[") != std::string_view::npos;
}

Files resolve(const Files& files, const std::string& pattern) {
  const Files parts = names_of(pattern.starts_with("./") ? pattern.substr(2) : pattern);
  Files out;
  for (const auto& file : files) {
    const Files path = names_of(file);
    if (matches(path, parts) && !hidden_from(path, parts)) out.push_back(file);
  }
  return out;
}

using Splits = std::vector<std::pair<std::string, Files>>;

/// data/{split}-00000-of-00002*.*
Splits sharded(const Files& files, const std::string& prefix) {
  static const auto kShard = Expression::read(R"(data/(.+)-[0-9]{5}-of-[0-9]{5}[^/]*\.[^/]*)");
  static const auto kName = Expression::read(R"([A-Za-z0-9_]+(\.[A-Za-z0-9_]+)*)");
  std::map<std::string, Files> found;
  for (const auto& file : files) {
    if (!file.starts_with(prefix)) continue;
    const auto split = kShard->first_group(file.substr(prefix.size()));
    if (split && kName->matches(*split)) found[*split].push_back(file);
  }
  Splits out;
  for (const auto& words : kSplitWords)
    if (const auto known = found.find(std::string(words.split)); known != found.end()) {
      out.emplace_back(*known);
      found.erase(known);
    }
  out.insert(out.end(), found.begin(), found.end());
  return out;
}

/// By split keywords between separators, in the names of folders or of files.
Splits by_words(const Files& files, const std::string& prefix, bool folders) {
  constexpr std::string_view kSign = "[-._ 0-9]";
  Splits out;
  for (const auto& words : kSplitWords) {
    Files found;
    for (const auto word : words.words) {
      if (word.empty()) continue;
      Files patterns;
      if (folders)
        patterns = {fmt::format("{}**/{}/**", prefix, word), fmt::format("{}**/{}{}*/**", prefix, word, kSign),
                    fmt::format("{}**/*{}{}/**", prefix, kSign, word),
                    fmt::format("{}**/*{}{}{}*/**", prefix, kSign, word, kSign)};
      else
        patterns = {fmt::format("{}**/{}{}*", prefix, word, kSign),
                    fmt::format("{}**/*{}{}{}*", prefix, kSign, word, kSign)};
      for (const auto& pattern : patterns) {
        const Files more = resolve(files, pattern);
        found.insert(found.end(), more.begin(), more.end());  // matched twice: read twice, as in datasets
      }
    }
    if (!found.empty()) out.emplace_back(words.split, std::move(found));
  }
  return out;
}

Splits by_default(const Files& files, const std::string& data_dir) {
  const std::string prefix = data_dir.empty() ? "" : data_dir + "/";
  Splits out = sharded(files, prefix);
  if (out.empty()) out = by_words(files, prefix, true);
  if (out.empty()) out = by_words(files, prefix, false);
  if (out.empty())
    if (Files all = resolve(files, prefix + "**"); !all.empty()) out.emplace_back("train", std::move(all));
  return out;
}

/// The extensions in a name, in order (also in "a.jsonl.gz" and "a.parquet.bak").
std::vector<const Extension*> extensions_of(std::string_view file) {
  std::vector<const Extension*> out;
  file.remove_prefix(file.rfind('/') + 1);
  for (std::size_t dot = file.find('.', 1); dot != std::string_view::npos; dot = file.find('.', dot + 1)) {
    const std::string_view suffix = file.substr(dot, file.find('.', dot + 1) - dot);
    for (const auto& row : kExtensions)
      if (suffix.size() == row.suffix.size() && std::equal(suffix.begin(), suffix.end(), row.suffix.begin(),
                                                           [](char a, char b) { return (a | 32) == (b | 32); }))
        out.push_back(&row);
  }
  return out;
}

/// The reader that most extensions stand for; "" if there is none.
std::string_view reader_of_most(const Files& files) {
  std::array<int, kExtensions.size()> counts{};
  for (const auto& file : files)
    for (const auto* row : extensions_of(file)) ++counts[static_cast<std::size_t>(row - kExtensions.data())];
  const auto most = std::max_element(counts.begin(), counts.end());
  return *most == 0 ? std::string_view() : kExtensions[static_cast<std::size_t>(most - counts.begin())].reader;
}

Files strings_of(const config::Value& value) {
  Files out;
  if (const auto* text = value.string()) out.push_back(*text);
  if (const auto* list = value.list())
    for (const auto& item : *list)
      if (const auto* text = item.string()) out.push_back(*text);
  return out;
}

std::string text_of(const config::Value& map, std::string_view key) {
  const auto* value = map.find(key);
  return value == nullptr || value->string() == nullptr ? std::string() : *value->string();
}

class Choosing {
 public:
  Choosing(Files files, const std::string& folder, Diagnostics& problems)
      : files_(std::move(files)), folder_(folder), problems_(problems) {}

  std::optional<DataFiles> run(const config::Value& card, const std::optional<std::string>& name) {
    const auto* configs = card.find("configs");
    if (configs == nullptr || configs->list() == nullptr || configs->list()->empty()) {
      if (name && *name != "default") return unknown_config(*name, {"default"});
      return finish("default", by_default(files_, ""), true);
    }
    // The first configuration is always validated, whichever is requested, and must be complete.
    const auto& first = configs->list()->front();
    const auto checked = finish(name_of(first), splits_of(first, true), true);
    const auto* chosen = checked ? choose(*configs->list(), name) : nullptr;
    if (chosen == nullptr) return std::nullopt;
    if (chosen == &first) return checked;
    return finish(name_of(*chosen), splits_of(*chosen, false), false);
  }

 private:
  static std::string name_of(const config::Value& config) {
    const std::string name = text_of(config, "config_name");
    return name.empty() ? "default" : name;
  }

  std::nullopt_t refuse(ProblemId id, std::string message, std::string help) {
    if (!refused_) problems_.add(id).says(std::move(message)).hint(std::move(help)).at({folder_, 0, 0});
    refused_ = true;
    return std::nullopt;
  }
  std::nullopt_t unknown_config(const std::string& name, const Files& names) {
    return refuse("bad-value", fmt::format("'{}' has no configuration '{}'", folder_, name),
                  fmt::format("name: one of {}", fmt::join(names, ", ")));
  }

  const config::Value* choose(const config::Value::List& configs, const std::optional<std::string>& name) {
    Files names;
    std::set<std::string> seen;
    const config::Value* named = nullptr;
    std::vector<const config::Value*> marked;  // those that may stand for a missing name
    for (const auto& config : configs) {
      names.push_back(name_of(config));
      if (!seen.insert(names.back()).second) {
        refuse("bad-value", fmt::format("the card of '{}' has configuration '{}' twice", folder_, names.back()),
               "a configuration has one name");
        return nullptr;
      }
      if (name && names.back() == *name) named = &config;
      const auto* flag = config.find("default");
      if (names.back() == "default" || (flag != nullptr && flag->boolean() != nullptr && *flag->boolean()))
        marked.push_back(&config);
    }
    if (named != nullptr) return named;
    if (name) {
      unknown_config(*name, names);
      return nullptr;
    }
    if (marked.size() == 1) return marked.front();
    if (configs.size() == 1) return &configs.front();
    refuse("missing-key",
           fmt::format("'{}' has several configurations, and {} is the default", folder_,
                       marked.empty() ? "none" : "more than one"),
           fmt::format("name: one of {}", fmt::join(names, ", ")));
    return nullptr;
  }

  Splits splits_of(const config::Value& config, bool whole) {
    const auto* data_files = config.find("data_files");
    if (data_files == nullptr) return by_default(files_, text_of(config, "data_dir"));
    Splits out;
    const auto* list = data_files->list();
    const bool mapped = list != nullptr && !list->empty() && list->front().map() != nullptr;
    if (!mapped) {
      out.emplace_back("train", expand(strings_of(*data_files), whole));
      return out;
    }
    std::set<std::string> seen;
    for (const auto& item : *list) {
      const std::string split = text_of(item, "split");
      if (!seen.insert(split).second)
        refuse("bad-value", fmt::format("the card of '{}' has split '{}' twice", folder_, split),
               "a split has one list of files");
      const auto* path = item.find("path");
      out.emplace_back(split, expand(path == nullptr ? Files() : strings_of(*path), whole));
    }
    return out;
  }

  /// A file that a pattern without wildcards names, hidden or not.
  Files named(const std::string& path) const {
    const std::string plain = path.starts_with("./") ? path.substr(2) : path;
    return std::ranges::binary_search(files_, plain) ? Files{plain} : Files();
  }

  Files expand(const Files& patterns, bool whole) {
    Files out;
    for (const auto& pattern : patterns) {
      looked_at_ += is_glob(pattern) ? files_.size() : 1;
      if (looked_at_ > kMostLooks || out.size() > kMostLooks)
        refuse("bad-value", fmt::format("the card of '{}' names more files than are looked for", folder_),
               "fewer patterns, or folders of their own for the configurations");
      if (refused_) return out;
      const Files found = is_glob(pattern) ? resolve(files_, pattern) : named(pattern);
      const bool outside = pattern.starts_with('/') || pattern.find("..") != std::string::npos;
      if (outside || (found.empty() && !is_glob(pattern)))
        refuse("dataset-not-found", fmt::format("the card names '{}', which is not in '{}'", pattern, folder_),
               "the copy may be incomplete: download it again");
      else if (found.empty() && whole)
        refuse("dataset-not-found", fmt::format("no file in '{}' matches '{}' of its card", folder_, pattern),
               "the copy may be incomplete: download it again");
      out.insert(out.end(), found.begin(), found.end());
    }
    return out;
  }

  std::optional<DataFiles> finish(std::string config, Splits splits, bool whole) {
    if (refused_) return std::nullopt;
    if (splits.empty())
      return refuse("dataset-not-found", fmt::format("there are no data files in '{}'", folder_),
                    "Parquet, Arrow, JSON, JSON lines, CSV and TSV files are read");
    DataFiles out{"", std::move(config), std::move(splits)};
    for (const auto& [split, files] : out.splits) {
      const std::string_view reader = reader_of_most(files);
      if (files.empty() && !whole) continue;
      if (out.reader.empty()) out.reader = reader;
      if (reader.empty() || reader != out.reader)
        return refuse("bad-value",
                      reader.empty()
                          ? fmt::format("split '{}' of '{}' has no data file of a known kind", split, folder_)
                          : fmt::format("'{}' has {} files and {} files", folder_, out.reader, reader),
                      "all splits must be of one kind: Parquet, Arrow, JSON or CSV");
    }
    for (auto& [split, files] : out.splits) {
      for (const auto& file : files)
        if (file.ends_with(".zip"))  // datasets reads the rows in it
          return refuse("bad-value", fmt::format("'{}' of '{}' is an archive, which is not read", file, folder_),
                        "extract it, or move it out of the folder");
      std::erase_if(files, [&](const std::string& file) {
        const auto rows = extensions_of(file);
        return std::none_of(rows.begin(), rows.end(), [&](const auto* row) { return row->reader == out.reader; });
      });
    }
    return out;
  }

  static constexpr std::size_t kMostLooks = 2'000'000;  ///< patterns x files, a second or two

  Files files_;  ///< sorted
  std::size_t looked_at_ = 0;
  const std::string& folder_;
  Diagnostics& problems_;
  bool refused_ = false;
};

/// The YAML front matter between the first two "---" lines.
config::Value front_matter(const std::string& card) {
  if (!card.starts_with("---")) return {};
  const std::size_t begin = card.find('\n');
  const std::size_t end = begin == std::string::npos ? begin : card.find("\n---", begin);
  if (end == std::string::npos) return {};
  Diagnostics ignored;  // a card with invalid YAML is treated as empty, as in datasets
  return config::to_value(
      config::parse_yaml(std::string_view(card).substr(begin + 1, end - begin), "README.md", ignored));
}

void list_into(const fs::path& folder, const std::string& prefix, int depth, Files& out) {
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    const std::string name = prefix + it->path().filename().native();
    std::error_code unknown;
    if (fs::is_directory(it->path(), unknown)) {
      if (depth < 32) list_into(it->path(), name + "/", depth + 1, out);
    } else if (fs::is_regular_file(it->path(), unknown)) {
      out.push_back(name);
    }
  }
}

}  // namespace

std::optional<DataFiles> choose_data_files(std::vector<std::string> files, const std::optional<std::string>& card,
                                           const std::optional<std::string>& name, const std::string& folder,
                                           Diagnostics& problems) {
  std::sort(files.begin(), files.end());
  return Choosing(std::move(files), folder, problems).run(card ? front_matter(*card) : config::Value(), name);
}

std::vector<std::string> list_files(const fs::path& folder) {
  Files out;
  list_into(folder, "", 0, out);
  std::sort(out.begin(), out.end());
  return out;
}

std::string reader_of(std::string_view file) {
  const auto rows = extensions_of(file);
  return rows.empty() ? "" : std::string(rows.back()->reader);
}

}  // namespace automodel::rows
