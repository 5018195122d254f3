#include "checkpoint/memory_copies.h"

#include <chrono>
#include <exception>
#include <fstream>
#include <random>

#include <fmt/format.h>
#include <sys/stat.h>

#include "base/bytes.h"
#include "base/crc32c.h"
#include "base/error.h"
#include "checkpoint/agreement.h"
#include "checkpoint/copy_part.h"
#include "checkpoint/format/file.h"
#include "checkpoint/format/memory_folder.h"
#include "checkpoint/format/root_folder.h"
#include "checkpoint/memory_mark.h"

namespace automodel::checkpoint {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

/// Identifies the memory behind a folder: ranks with the same name see the same files.
std::string place_of(const fs::path& folder) {
  std::string boot;
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id") >> std::ws, boot);
  struct stat status {};
  const bool there = stat(folder.c_str(), &status) == 0;
  return fmt::format("{} {} {}", boot, there ? status.st_dev : 0, there ? status.st_ino : 0);
}

/// Distinguishes the run in this folder from an earlier one in the same folder, by a file in it that is created if
/// missing.
std::string owner_of(const fs::path& run_folder) {
  const auto path = run_folder / kOwnerName;
  std::string text;
  if (std::getline(std::ifstream(path), text) && !text.empty()) return text;
  std::random_device random;
  text = fmt::format("{:08x}{:08x}", random(), random());
  std::error_code error;
  fs::remove(path, error);
  write_file(path, text + "\n");
  return text;
}

/// One rank's work on one copy.
class Copying {
 public:
  Copying(CopyRequest request, fs::path root, const MemoryHosts& hosts, comm::Communicator& group)
      : request_(std::move(request)),
        root_(std::move(root)),
        partial_(partial_path(root_, request_.name)),
        hosts_(hosts),
        group_(group),
        files_(request_.parts, group.rank() == 0) {}

  /// Copies the pieces while they are valid.
  void write() {
    attempt([&] {
      together(group_, [&] {
        if (hosts_.first()) create();
      });
      together(group_, [&] { files_.write(partial_); });
    });
    seconds_ += std::chrono::duration<double>(Clock::now() - begin_).count();
  }

  CopyReport finish() {
    CopyReport report{.name = request_.name};
    const auto begin = Clock::now();
    attempt([&] { report.bytes = complete(); });
    report.seconds = seconds_ + std::chrono::duration<double>(Clock::now() - begin).count();
    return report;
  }

 private:
  void attempt(const std::function<void()>& work) {
    try {
      work();
    } catch (const Error& error) {
      std::error_code ignored;
      if (error.code() == ExitCode::kCheckpoint && hosts_.first()) fs::remove_all(partial_, ignored);
      throw;
    }
  }

  void create() {
    make_memory_folder(root_);
    remove_leftovers(root_);
    make_folder(partial_);
    files_.create(partial_, false);
    for (const auto& [name, text] : request_.texts) write_file(partial_ / name, text);
  }

  std::uint64_t complete() {
    CopyPart mine{.rank = group_.rank(), .extents = files_.extents()};
    for (const auto& file : files_.files()) mine.checksums.push_back(file.checksum.state());
    files_.merge(group_);
    const auto manifest = made_manifest();
    const auto tensors = tensor_files(manifest);
    together(group_, [&] { write_record(partial_, mine); });
    const auto kept = exchange(mine, tensors);
    together(group_, [&] {
      if (!hosts_.first()) return;
      write_file(partial_ / kManifestName, to_json(manifest));
      commit(root_, request_.name);
    });
    // Every host has the new copy now.
    if (hosts_.first()) remove_copies(root_, request_.name);
    return mine.bytes() + kept;
  }

  Manifest made_manifest() const {
    Manifest out{.run = request_.run};
    for (const auto& file : files_.files()) {
      out.files.push_back(PieceFiles::entry_of(file));
      AUTOMODEL_CHECK(out.files.size() < 2 || out.files[out.files.size() - 2].file < file.name,
                      "files in a different order");
    }
    const auto add = [&](const std::string& name, const std::string& text) {
      out.files.push_back({name, text.size(), crc32c(text)});
    };
    for (const auto& part : request_.parts)
      if (!part.layout.index_name.empty()) add(part.folder + "/" + part.layout.index_name, part.layout.index);
    for (const auto& [name, text] : request_.texts) add(name, text);
    return out;
  }

  /// Exchanges parts between hosts; returns the bytes that this rank keeps for others.
  std::uint64_t exchange(const CopyPart& mine, const std::vector<ManifestEntry>& tensors) {
    std::vector<Outgoing> outgoing;
    std::vector<Incoming> incoming;
    if (const auto keeper = hosts_.keeper(mine.rank)) outgoing.push_back({&mine, *keeper});
    for (const int rank : hosts_.kept_by(mine.rank)) incoming.push_back({rank, rank});
    const auto kept = exchange_together(group_, partial_, tensors, outgoing, incoming);
    std::uint64_t bytes = 0;
    for (const auto& each : kept) bytes += each.bytes();
    return bytes;
  }

  CopyRequest request_;
  fs::path root_, partial_;
  const MemoryHosts& hosts_;
  comm::Communicator& group_;
  PieceFiles files_;
  Clock::time_point begin_ = Clock::now();
  double seconds_ = 0;
};

}  // namespace

std::string owner_text(const std::string& owner, int ranks) {
  return fmt::format("{} {}\n", owner, ranks);
}

void remove_copies(const fs::path& root, const std::string& but) {
  std::error_code error;
  for (const auto& each : seen_checkpoints(root))
    if (each.path.filename() != but) fs::remove_all(each.path, error);
}

std::vector<CopyPart> exchange_together(comm::Communicator& group, const fs::path& copy,
                                        const std::vector<ManifestEntry>& files, const std::vector<Outgoing>& outgoing,
                                        const std::vector<Incoming>& incoming) {
  std::vector<CopyPart> out;
  std::exception_ptr failure;
  try {
    out = exchange_parts(group, copy, files, outgoing, incoming);
  } catch (const Error& error) {
    if (error.code() != ExitCode::kCheckpoint) throw;
    failure = std::current_exception();
  }
  together(group, [&] {
    if (failure) std::rethrow_exception(failure);
  });
  return out;
}

MemoryCopies::MemoryCopies(comm::World& world, const fs::path& run_folder)
    : world_(world),
      run_folder_(run_folder),
      root_(memory_root() /
            world.broadcast_text(world.rank() == 0 ? memory_folder(run_folder).filename().native() : "")),
      hosts_(texts_of_all(world, place_of(memory_root())), world.rank()),
      group_(world.group(world.control().ranks(), "copies", comm::kHostTensors)) {
  together(*group_, [&] {
    if (world_.rank() == 0) owner_ = owner_of(run_folder_);
    if (hosts_.first() && !memory_room(root_))
      throw Error(
          Diagnostic{"no-memory-folder"}
              .says("'{}' on host {} cannot be used as your folder in memory", root_.native(), world_.host_name())
              .hint("copies need a file system in memory that can be written to; "
                    "AUTOMODEL_MEMORY_DIR names one other than /dev/shm")
              .of("checkpoint.memory_every_steps"));
  });
  owner_ = world_.broadcast_text(owner_);
}

void MemoryCopies::check_room(std::uint64_t mine) {
  const auto bytes = gather_numbers(*group_, {mine});
  together(*group_, [&] {
    if (!hosts_.first()) return;
    std::uint64_t kept = 0;
    for (const int rank : hosts_.ranks(hosts_.mine())) {
      kept += bytes[static_cast<std::size_t>(rank)];
      for (const int other : hosts_.kept_by(rank)) kept += bytes[static_cast<std::size_t>(other)];
    }
    const auto room = memory_room(root_).value_or(0);
    if (2 * kept <= room) return;
    throw Error(
        Diagnostic{"memory-copies-too-large"}
            .says("host {} keeps two copies of {}, and '{}' has room for {}", world_.host_name(),
                  format_bytes(static_cast<double>(kept)), root_.parent_path().native(),
                  format_bytes(static_cast<double>(room)))
            .hint("enlarge it (mount -o remount,size=...), use more hosts, or remove checkpoint.memory_every_steps")
            .of("checkpoint.memory_every_steps"));
  });
}

void MemoryCopies::save(CopyRequest request, bool live) {
  if (auto before = finish()) work_.put(std::move(*before));
  request.texts.emplace_back(kMarkName, owner_text(owner_, world_.size()));
  const auto copying = std::make_shared<Copying>(std::move(request), root_, hosts_, *group_);
  if (live) copying->write();
  work_.start([copying, live] {
    if (!live) copying->write();
    return copying->finish();
  });
}

void MemoryCopies::keep_only(const std::string& name) const {
  if (hosts_.first()) remove_copies(root_, name);
}

void MemoryCopies::remove() const {
  std::error_code error;
  if (hosts_.first()) fs::remove_all(root_, error);
  if (world_.rank() == 0) fs::remove(run_folder_ / kOwnerName, error);
}

}  // namespace automodel::checkpoint
