#include "checkpoint/format/root_folder.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <tuple>

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include "base/error.h"
#include "base/log.h"
#include "checkpoint/format/file.h"
#include "checkpoint/format/manifest.h"

namespace automodel::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPartial = ".partial", kDeleted = ".deleted";

bool take_number(std::string_view& text, std::string_view prefix, std::int64_t& out) {
  if (!text.starts_with(prefix)) return false;
  text.remove_prefix(prefix.size());
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  if (error != std::errc() || out < 0) return false;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return true;
}

fs::path hidden(const fs::path& root, const std::string& name, std::string_view ending) {
  return root / ("." + name + std::string(ending));
}

/// Renames first, then deletes.
bool remove_checkpoint(const fs::path& root, const std::string& name) {
  const auto going = hidden(root, name, kDeleted);
  std::error_code error;
  fs::remove_all(going, error);
  fs::rename(root / name, going, error);
  if (error) return false;
  fs::remove_all(going, error);
  return true;
}

fs::path newest_of(const std::vector<ListedCheckpoint>& all, const fs::path& root) {
  fs::path newest;
  const auto latest = link_target(root, kLatest);
  for (const auto& each : all) {
    if (!each.complete) continue;
    newest = each.path;
    if (each.path.filename() == latest) break;
  }
  return newest;
}

}  // namespace

std::string to_text(const CheckpointName& name) {
  return fmt::format("epoch_{}_step_{}", name.epoch, name.step);
}

std::optional<CheckpointName> parse_checkpoint_name(std::string_view text) {
  CheckpointName out;
  std::string_view rest = text;
  if (!take_number(rest, "epoch_", out.epoch) || !take_number(rest, "_step_", out.step) || !rest.empty() ||
      to_text(out) != text)
    return std::nullopt;
  return out;
}

std::vector<ListedCheckpoint> list_checkpoints(const fs::path& root) {
  std::vector<ListedCheckpoint> out;
  for (const auto& path : entries_of(root)) {
    std::error_code unreadable;
    const auto name = parse_checkpoint_name(path.filename().native());
    if (!name || !fs::is_directory(fs::symlink_status(path, unreadable))) continue;
    out.push_back({*name, path, is_there(path / kManifestName)});
  }
  std::sort(out.begin(), out.end(), [](const ListedCheckpoint& a, const ListedCheckpoint& b) {
    return std::tuple(a.name.step, a.name.epoch) < std::tuple(b.name.step, b.name.epoch);
  });
  return out;
}

std::vector<ListedCheckpoint> seen_checkpoints(const fs::path& root) {
  try {
    return list_checkpoints(root);
  } catch (const Error& error) {
    log::warning(error.problems().front());
    return {};
  }
}

fs::path newest_checkpoint(const fs::path& root) {
  return newest_of(list_checkpoints(root), root);
}

fs::path newest_seen(const fs::path& root) {
  return newest_of(seen_checkpoints(root), root);
}

fs::path partial_path(const fs::path& root, const std::string& name) {
  return hidden(root, name, kPartial);
}

void remove_leftovers(const fs::path& root) {
  std::error_code error;
  std::vector<fs::path> going;
  for (fs::directory_iterator it(root, error), end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename().native();
    for (const auto ending : {kPartial, kDeleted})
      if (name.starts_with('.') && name.ends_with(ending) &&
          parse_checkpoint_name(std::string_view(name).substr(1, name.size() - 1 - ending.size())))
        going.push_back(it->path());
  }
  for (const auto& path : going) fs::remove_all(path, error);
}

void commit(const fs::path& root, const std::string& name) {
  const auto from = partial_path(root, name), to = root / name;
  std::error_code error;
  if (!fs::exists(fs::symlink_status(to, error))) {
    if (rename(from.c_str(), to.c_str()) != 0)
      fail_unwritable(fmt::format("'{}' cannot be renamed to '{}'", from.native(), to.native()), errno);
  } else if (renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_EXCHANGE) == 0) {
    fs::remove_all(from, error);  // `from` is now the replaced one
  } else {
    // This file system cannot exchange names: for a moment neither folder has the name, and a crash would leave an
    // older checkpoint as the newest.
    const auto aside = hidden(root, name, kDeleted);
    fs::remove_all(aside, error);
    if (rename(to.c_str(), aside.c_str()) != 0 || rename(from.c_str(), to.c_str()) != 0)
      fail_unwritable(fmt::format("'{}' cannot be renamed to '{}'", from.native(), to.native()), errno);
    fs::remove_all(aside, error);
  }
  sync_folder(root);
}

void set_link(const fs::path& root, const char* link, const std::string& name) {
  const auto made = root / fmt::format(".{}.new", link), place = root / link;
  unlink(made.c_str());
  if (symlink(name.c_str(), made.c_str()) != 0 || rename(made.c_str(), place.c_str()) != 0)
    fail_unwritable(fmt::format("the link '{}' cannot be set", place.native()), errno);
  sync_folder(root);
}

std::string link_target(const fs::path& root, const char* link) {
  std::error_code error;
  const auto target = fs::read_symlink(root / link, error);
  return error ? "" : target.filename().native();
}

std::vector<std::string> retain(const fs::path& root, int keep) {
  const auto latest = link_target(root, kLatest), lowest = link_target(root, kLowestLoss);
  std::vector<std::string> counted, gone;
  for (const auto& each : seen_checkpoints(root))
    if (each.complete && to_text(each.name) != lowest) counted.push_back(to_text(each.name));
  const auto least = static_cast<std::size_t>(std::max(1, keep));
  std::size_t left = counted.size();
  for (const auto& name : counted) {
    if (left <= least) break;
    if (name == latest || (latest.empty() && name == counted.back()) || !remove_checkpoint(root, name)) continue;
    gone.push_back(name);
    --left;
  }
  return gone;
}

}  // namespace automodel::checkpoint
