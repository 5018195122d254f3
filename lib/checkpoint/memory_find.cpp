// Chooses the in-memory copy that a run resumes from, and completes it on every host.
#include <algorithm>
#include <sstream>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/bytes.h"
#include "base/crc32c.h"
#include "base/error.h"
#include "checkpoint/agreement.h"
#include "checkpoint/copy_part.h"
#include "checkpoint/format/file.h"
#include "checkpoint/format/memory_folder.h"
#include "checkpoint/format/root_folder.h"
#include "checkpoint/memory_copies.h"
#include "checkpoint/memory_mark.h"

namespace automodel::checkpoint {
namespace {

namespace fs = std::filesystem;

std::string content_of(const fs::path& path) {
  Diagnostics ignored;
  return read_file(path, ignored).value_or("");
}

/// Packs a copy's manifest and small files into one text; unbundled() reverses it.
std::string bundled(const fs::path& copy) {
  std::string out;
  const auto add = [&](const std::string& name) {
    const auto text = content_of(copy / name);
    out += fmt::format("{} {} {}", name.size(), text.size(), name) + text;
  };
  add(kManifestName);
  Diagnostics ignored;
  if (const auto manifest = read_manifest(copy, ignored))
    for (const auto& each : other_files(*manifest)) add(each.file);
  return out;
}

std::vector<std::pair<std::string, std::string>> unbundled(const std::string& text) {
  std::vector<std::pair<std::string, std::string>> out;
  for (std::size_t at = 0; at < text.size();) {
    const auto first = text.find(' ', at), second = text.find(' ', first + 1);
    const auto name = std::stoul(text.substr(at, first - at)),
               size = std::stoul(text.substr(first + 1, second - first));
    out.emplace_back(text.substr(second + 1, name), text.substr(second + 1 + name, size));
    at = second + 1 + name + size;
  }
  return out;
}

/// Creates the tensor files at full length without content, and the small files.
void make_empty(const fs::path& partial, const std::vector<ManifestEntry>& files, const std::string& texts) {
  std::error_code error;
  fs::create_directories(partial, error);
  const auto folder_of = [&](const std::string& name) {
    fs::create_directories((partial / name).parent_path(), error);
  };
  for (const auto& file : files) {
    folder_of(file.file);
    OutputFile(partial / file.file, OutputFile::Mode::kCreate).lengthen(file.size);
  }
  for (const auto& [name, text] : unbundled(texts)) {
    folder_of(name);
    write_file(partial / name, text);
  }
}

/// Restores the lengths of truncated or deleted files; their parts are received again.
void mend_lengths(const fs::path& copy, const std::vector<ManifestEntry>& files) {
  std::error_code error;
  for (const auto& file : files) {
    const auto path = copy / file.file;
    const auto mode = fs::exists(path, error) ? OutputFile::Mode::kExisting : OutputFile::Mode::kCreate;
    OutputFile(path, mode).lengthen(file.size);
  }
}

std::string damage_of(const Error& error) {
  return error.problems().front().message;
}

}  // namespace

MemoryCopies::Holding* MemoryCopies::Candidate::on(int host) {
  const auto found = std::ranges::find(holdings, host, &Holding::host);
  return found == holdings.end() ? nullptr : &*found;
}

std::optional<int> MemoryCopies::Candidate::missing() const {
  for (int part = 0; part < ranks; ++part)
    if (std::ranges::none_of(holdings, [&](const Holding& each) { return std::ranges::count(each.parts, part) > 0; }))
      return part;
  return std::nullopt;
}

int MemoryCopies::Candidate::source(int part, int host, int hosts) const {
  for (int step = 1; step < hosts; ++step) {
    const int other = (host - step + hosts) % hosts;
    for (const auto& each : holdings)
      if (each.host == other && std::ranges::count(each.parts, part) > 0) return other;
  }
  throw InternalError("a part that no host has");
}

std::vector<MemoryCopies::Candidate> MemoryCopies::candidates(std::int64_t newer_than) {
  // One line per copy: host, name, manifest digest, ranks, parts.
  std::string mine;
  if (hosts_.first() && memory_room(root_)) {
    remove_leftovers(root_);
    for (const auto& each : seen_checkpoints(root_)) {
      if (!each.complete || each.name.step <= newer_than) continue;
      std::string owner;
      int ranks = 0;
      if (!(std::istringstream(content_of(each.path / kMarkName)) >> owner >> ranks) || owner != owner_) continue;
      mine +=
          fmt::format("{} {} {:08x} {} {}\n", hosts_.mine(), to_text(each.name),
                      crc32c(content_of(each.path / kManifestName)), ranks, fmt::join(recorded_ranks(each.path), " "));
    }
  }
  std::vector<Candidate> out;
  for (const auto& text : texts_of_all(world_, mine)) {
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
      std::istringstream words(line);
      Holding holding;
      Candidate seen;
      words >> holding.host >> seen.name >> seen.digest >> seen.ranks;
      for (int part = 0; words >> part;) holding.parts.push_back(part);
      auto found = std::ranges::find_if(
          out, [&](const Candidate& each) { return each.name == seen.name && each.digest == seen.digest; });
      if (found == out.end()) found = out.insert(out.end(), seen);
      found->holdings.push_back(std::move(holding));
    }
  }
  std::ranges::stable_sort(out, [](const Candidate& a, const Candidate& b) {
    return parse_checkpoint_name(a.name)->step > parse_checkpoint_name(b.name)->step;
  });
  return out;
}

std::string MemoryCopies::verify(Candidate& candidate, const std::vector<ManifestEntry>& files) {
  std::string bad;
  if (const auto* mine = candidate.on(hosts_.mine()))
    for (std::size_t i = 0; i < mine->parts.size(); ++i) {
      if (hosts_.worker(hosts_.mine(), static_cast<int>(i)) != world_.rank()) continue;
      try {
        read_verified(root_ / candidate.name, mine->parts[i], files);
      } catch (const Error& error) {
        bad += fmt::format("{} {} {}\n", hosts_.mine(), mine->parts[i], damage_of(error));
      }
    }
  std::string first;
  for (const auto& text : texts_of_all(world_, bad)) {
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
      std::istringstream words(line);
      int host = 0, part = 0;
      words >> host >> part >> std::ws;
      std::erase(candidate.on(host)->parts, part);
      if (first.empty()) std::getline(words, first);
    }
  }
  return first;
}

void MemoryCopies::bring_together(const Candidate& candidate, const std::vector<ManifestEntry>& files,
                                  const std::string& texts) {
  const auto has = [&](int host, int part) {
    return std::ranges::any_of(candidate.holdings, [&](const Holding& each) {
      return each.host == host && std::ranges::count(each.parts, part) > 0;
    });
  };
  const bool empty =
      std::ranges::none_of(candidate.holdings, [&](const Holding& each) { return each.host == hosts_.mine(); });
  const auto folder = empty ? partial_path(root_, candidate.name) : root_ / candidate.name;
  together(*group_, [&] {
    if (!hosts_.first()) return;
    if (!empty) return mend_lengths(folder, files);
    make_memory_folder(root_);
    std::error_code error;
    fs::remove_all(root_ / candidate.name, error);  // from another attempt
    make_empty(folder, files, texts);
  });
  std::vector<std::unique_ptr<CopyPart>> sent;
  std::vector<Outgoing> outgoing;
  std::vector<Incoming> incoming;
  // A record may have been damaged or deleted since verify().
  together(*group_, [&] {
    for (int host = 0; host < hosts_.count(); ++host)
      for (int part = 0; part < candidate.ranks; ++part) {
        if (has(host, part)) continue;
        const int from = hosts_.worker(candidate.source(part, host, hosts_.count()), part);
        const int to = hosts_.worker(host, part);
        if (to == world_.rank()) incoming.push_back({part, from});
        if (from != world_.rank()) continue;
        sent.push_back(std::make_unique<CopyPart>(read_record(folder, part, files)));
        outgoing.push_back({sent.back().get(), to});
      }
  });
  exchange_together(*group_, folder, files, outgoing, incoming);
  together(*group_, [&] {
    if (hosts_.first() && empty) commit(root_, candidate.name);
  });
}

std::string MemoryCopies::complete(Candidate& candidate, const RunIdentity& run) {
  if (const auto part = candidate.missing()) return fmt::format("no host has the part of rank {}", *part);
  const int source = candidate.holdings.front().host;
  const int teller = hosts_.ranks(source).front();
  const auto texts = world_.broadcast_text(world_.rank() == teller ? bundled(root_ / candidate.name) : "", teller);
  Diagnostics problems;
  const auto manifest = parse_manifest(unbundled(texts).front().second, kManifestName, problems);
  if (!manifest || !manifest->run) return "its manifest is damaged";
  if (const auto others = differences(run, *manifest->run); !others.empty())
    return fmt::format("it is of another run: {}", fmt::join(others, "; "));
  for (const auto& [name, text] : unbundled(texts))
    for (const auto& each : other_files(*manifest))
      if (each.file == name && each.checksum != crc32c(text)) return fmt::format("{} is damaged", name);
  const auto files = tensor_files(*manifest);
  const auto damage = verify(candidate, files);
  if (candidate.missing()) return damage;
  std::uint64_t all = 0;
  for (const auto& each : files) all += each.size;
  const auto room = memory_room(root_).value_or(0);  // includes what the folder already holds
  const auto short_by = hosts_.first() && all > room ? all - room : 0;
  const auto shorts = gather_numbers(*group_, {short_by});
  if (std::ranges::any_of(shorts, [](std::uint64_t each) { return each > 0; }))
    return fmt::format("some host has no room for all of it ({})", format_bytes(static_cast<double>(all)));
  try {
    bring_together(candidate, files, texts);
  } catch (const Error& problem) {
    if (problem.code() != ExitCode::kCheckpoint) throw;
    return damage_of(problem);
  }
  return "";
}

std::optional<fs::path> MemoryCopies::find(const RunIdentity& run, std::int64_t newer_than, const Say& say) {
  for (auto& candidate : candidates(newer_than)) {
    const auto why = complete(candidate, run);
    if (why.empty()) return root_ / candidate.name;
    say(fmt::format("the copy {} in memory cannot be used: {}", candidate.name, why));
  }
  return std::nullopt;
}

}  // namespace automodel::checkpoint
