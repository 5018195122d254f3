#include "checkpoint/saver.h"

#include <chrono>

#include <fmt/format.h>

#include "base/error.h"
#include "checkpoint/agreement.h"
#include "checkpoint/format/file.h"
#include "checkpoint/format/manifest.h"
#include "checkpoint/format/root_folder.h"

namespace automodel::checkpoint {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

/// One rank's work on one save.
class Save {
 public:
  Save(const SaveRequest& request, const fs::path& root, comm::Communicator& group)
      : request_(request),
        root_(root),
        partial_(partial_path(root, request.name)),
        group_(group),
        files_(request.parts, group.rank() == 0) {}

  void run(SaveReport& report) {
    together(group_, [&] {
      if (first()) create();
    });
    together(group_, [&] { files_.write(partial_); });
    files_.merge(group_);
    together(group_, [&] { verify(); });
    together(group_, [&] {
      if (first()) complete(report);
    });
    for (const auto& file : files_.files()) report.bytes += file.layout->file_size;
  }

  /// After a failure: what was written may have filled the disk.
  void clean_up() const {
    std::error_code ignored;
    if (first()) fs::remove_all(partial_, ignored);
  }

 private:
  bool first() const { return group_.rank() == 0; }

  /// Creates folders, tensor files at full size, and the small files. On rank 0, before the others write.
  void create() {
    std::error_code error;
    fs::create_directories(root_, error);
    if (error) fail_unwritable(fmt::format("the folder '{}' cannot be made", root_.native()), error.value());
    remove_leftovers(root_);
    make_folder(partial_);
    files_.create(partial_, true);
    for (const auto& [name, text] : request_.texts) write_file(partial_ / name, text);
    for (const auto& [name, source] : request_.copies) {
      Diagnostics problems;
      const auto text = read_file(source, problems);
      if (!text) throw Error(ExitCode::kCheckpoint, problems);
      write_file(partial_ / name, *text);
    }
  }

  /// Reads back this rank's share of the files.
  void verify() {
    const auto& files = files_.files();
    for (std::size_t i = static_cast<std::size_t>(group_.rank()); i < files.size();
         i += static_cast<std::size_t>(group_.size())) {
      Diagnostics problems;
      const auto entry = PieceFiles::entry_of(files[i]);
      check_sizes(partial_, {{entry}}, problems);
      if (problems.empty()) check_content(partial_, entry, problems);
      if (problems.empty()) continue;
      problems.front().help =
          "the data read back differs from what was written: the disk or the network file system is faulty";
      throw Error(ExitCode::kCheckpoint, problems);
    }
  }

  /// Writes the manifest, gives the checkpoint its name, updates links, applies retention. On rank 0, after everything
  /// else.
  void complete(SaveReport& report) {
    Manifest manifest{.run = request_.run};
    for (const auto& file : files_.files()) manifest.files.push_back(PieceFiles::entry_of(file));
    const auto add = [&](const std::string& name) {
      Diagnostics problems;
      std::error_code error;
      const auto checksum = checksum_of(partial_ / name, problems);
      if (!checksum) throw Error(ExitCode::kCheckpoint, problems);
      manifest.files.push_back({name, fs::file_size(partial_ / name, error), *checksum});
    };
    for (const auto& part : request_.parts)
      if (!part.layout.index_name.empty()) add(part.folder + "/" + part.layout.index_name);
    for (const auto& [name, text] : request_.texts) add(name);
    for (const auto& [name, source] : request_.copies) add(name);
    write_file(partial_ / kManifestName, to_json(manifest));
    for (const auto& part : request_.parts) sync_folder(partial_ / part.folder);
    sync_folder(partial_);
    commit(root_, request_.name);
    set_link(root_, kLatest, request_.name);
    if (request_.lowest_loss) set_link(root_, kLowestLoss, request_.name);
    if (request_.keep) report.deleted = retain(root_, *request_.keep);
  }

  const SaveRequest& request_;
  const fs::path& root_;
  fs::path partial_;
  comm::Communicator& group_;
  PieceFiles files_;
};

}  // namespace

Saver::Saver(comm::World& world, fs::path root)
    : root_(std::move(root)), group_(world.group(world.control().ranks(), "checkpoint", comm::kHostTensors)) {}

SaveReport Saver::write(const SaveRequest& request) {
  const auto begin = Clock::now();
  SaveReport report{.name = request.name, .path = root_ / request.name};
  Save save(request, root_, *group_);
  try {
    save.run(report);
  } catch (const Error& error) {
    if (error.code() == ExitCode::kCheckpoint) save.clean_up();
    throw;
  }
  report.seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  return report;
}

void Saver::save(SaveRequest request, bool background) {
  if (auto before = finish()) work_.put(std::move(*before));
  if (!background) {
    work_.put(write(request));
    return;
  }
  work_.start([this, request = std::move(request)] { return write(request); });
}

}  // namespace automodel::checkpoint
