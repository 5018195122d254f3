#include "checkpoint/saver.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <exception>
#include <map>

#include <fmt/format.h>

#include "base/crc32c.h"
#include "base/error.h"
#include "checkpoint/agreement.h"
#include "checkpoint/format/elements.h"
#include "checkpoint/format/file.h"
#include "checkpoint/format/manifest.h"
#include "checkpoint/format/root_folder.h"

namespace automodel::checkpoint {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr std::int64_t kChunk = 1 << 20;  // elements converted at once

/// A tensor file of the checkpoint while it is written.
struct FileState {
  std::string name;  ///< in the checkpoint
  const SafetensorsLayout* layout;
  PiecewiseCrc32c checksum;
  std::uint64_t written = 0;  ///< bytes of data, by this rank; by all after merging
};

/// A piece and where it goes.
struct Placed {
  const Piece* piece;
  ElementType type;      ///< in the file
  std::size_t file;      ///< index of FileState
  std::uint64_t offset;  ///< of its first byte
};

/// One rank's part of one save.
class Save {
 public:
  Save(const SaveRequest& request, const fs::path& root, comm::Communicator& group)
      : request_(request), root_(root), partial_(partial_path(root, request.name)), group_(group) {
    for (const auto& part : request.parts) place(part);
  }

  void run(SaveReport& report) {
    together(group_, [&] {
      if (first()) create();
    });
    together(group_, [&] { write_pieces(); });
    merge();
    together(group_, [&] { verify(); });
    together(group_, [&] {
      if (first()) complete(report);
    });
    for (const auto& file : files_) report.bytes += file.layout->file_size;
  }

  /// After a failure: the disk may be full of what was written.
  void clean_up() const {
    std::error_code ignored;
    if (first()) fs::remove_all(partial_, ignored);
  }

 private:
  bool first() const { return group_.rank() == 0; }

  void place(const TensorPart& part) {
    const std::size_t begin = files_.size();
    for (const auto& file : part.layout.files)
      files_.push_back({part.folder + "/" + file.name, &file.layout, PiecewiseCrc32c(file.layout.file_size)});
    std::map<std::string, const TensorInfo*> infos;
    for (const auto& file : part.layout.files)
      for (const auto& tensor : file.layout.tensors) infos[tensor.name] = &tensor;
    for (const auto& piece : part.pieces) {
      const auto& position = part.layout.positions.at(piece.tensor);
      const auto& info = *infos.at(piece.tensor);
      AUTOMODEL_CHECK(piece.first >= 0 && piece.first + piece.count <= info.elements(),
                      "a piece beyond the tensor " + piece.tensor);
      const auto size = static_cast<std::uint64_t>(bits_of(info.type) / 8);
      placed_.push_back(
          {&piece, info.type, begin + position.file, position.offset + static_cast<std::uint64_t>(piece.first) * size});
    }
    std::sort(placed_.begin(), placed_.end(), [](const Placed& a, const Placed& b) {
      return std::pair(a.file, a.offset) < std::pair(b.file, b.offset);
    });
  }

  /// Folders, heads and sizes of all tensor files, and the small files. On rank 0, before the others write.
  void create() {
    std::error_code error;
    fs::create_directories(root_, error);
    if (error) fail_unwritable(fmt::format("the folder '{}' cannot be made", root_.native()), error.value());
    remove_leftovers(root_);
    make_folder(partial_);
    for (const auto& part : request_.parts) {
      make_folder(partial_ / part.folder);
      for (const auto& file : part.layout.files) {
        OutputFile out(partial_ / part.folder / file.name, OutputFile::Mode::kCreate);
        out.reserve(file.layout.file_size);
        out.write(0, file.layout.head);
        out.sync();
      }
      if (!part.layout.index_name.empty())
        write_file(partial_ / part.folder / part.layout.index_name, part.layout.index);
    }
    for (const auto& [name, text] : request_.texts) write_file(partial_ / name, text);
    for (const auto& [name, source] : request_.copies) {
      Diagnostics problems;
      const auto text = read_file(source, problems);
      if (!text) throw Error(ExitCode::kCheckpoint, problems);
      write_file(partial_ / name, *text);
    }
    for (auto& file : files_) file.checksum.add(0, file.layout->head);
  }

  void write_pieces() {
    std::string buffer;
    for (std::size_t i = 0; i < placed_.size();) {
      auto& state = files_[placed_[i].file];
      OutputFile out(partial_ / state.name, OutputFile::Mode::kExisting);
      const std::size_t file = placed_[i].file;
      for (; i < placed_.size() && placed_[i].file == file; ++i) write_piece(placed_[i], out, state, buffer);
      out.sync();
    }
  }

  void write_piece(const Placed& placed, OutputFile& out, FileState& state, std::string& buffer) {
    const Piece& piece = *placed.piece;
    const auto in_size = bits_of(piece.type) / 8, out_size = bits_of(placed.type) / 8;
    for (std::int64_t at = 0; at < piece.count; at += kChunk) {
      const auto some = std::min(kChunk, piece.count - at);
      std::string_view bytes(piece.data + at * in_size, static_cast<std::size_t>(some * in_size));
      if (piece.type != placed.type) {
        buffer.resize(static_cast<std::size_t>(some * out_size));
        convert_elements(piece.type, bytes.data(), placed.type, buffer.data(), some);
        bytes = buffer;
      }
      const auto offset = placed.offset + static_cast<std::uint64_t>(at * out_size);
      out.write(offset, bytes);
      state.checksum.add(offset, bytes);
      state.written += bytes.size();
    }
  }

  /// Checksums of whole files out of those of all ranks' bytes.
  void merge() {
    std::vector<std::uint64_t> mine;
    for (const auto& file : files_) {
      mine.push_back(file.checksum.state());
      mine.push_back(file.written);
    }
    const auto all = gather_numbers(group_, mine);
    for (std::size_t rank = 0; rank < static_cast<std::size_t>(group_.size()); ++rank) {
      if (rank == static_cast<std::size_t>(group_.rank())) continue;
      for (std::size_t i = 0; i < files_.size(); ++i) {
        files_[i].checksum.merge(static_cast<std::uint32_t>(all[rank * mine.size() + 2 * i]));
        files_[i].written += all[rank * mine.size() + 2 * i + 1];
      }
    }
    for (const auto& file : files_)
      AUTOMODEL_CHECK(file.written + file.layout->head.size() == file.layout->file_size,
                      "ranks wrote " + std::to_string(file.written) + " bytes into " + file.name);
  }

  /// Reads back this rank's share of the files.
  void verify() {
    for (std::size_t i = static_cast<std::size_t>(group_.rank()); i < files_.size();
         i += static_cast<std::size_t>(group_.size())) {
      Diagnostics problems;
      const auto entry = entry_of(files_[i]);
      check_sizes(partial_, {{entry}}, problems);
      if (problems.empty()) check_content(partial_, entry, problems);
      if (problems.empty()) continue;
      problems.front().help =
          "what was read back is not what was written: the disk or the network file system is at "
          "fault";
      throw Error(ExitCode::kCheckpoint, problems);
    }
  }

  static ManifestEntry entry_of(const FileState& file) {
    return {file.name, file.layout->file_size, file.checksum.value()};
  }

  /// The manifest, the name, the links, retention. On rank 0, after everything else.
  void complete(SaveReport& report) {
    Manifest manifest{.run = request_.run};
    for (const auto& file : files_) manifest.files.push_back(entry_of(file));
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
  std::vector<FileState> files_;
  std::vector<Placed> placed_;
};

std::vector<int> all_ranks(const comm::World& world) {
  std::vector<int> out(static_cast<std::size_t>(world.size()));
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = static_cast<int>(i);
  return out;
}

}  // namespace

Saver::Saver(comm::World& world, fs::path root)
    : root_(std::move(root)), group_(world.group(all_ranks(world), "checkpoint")) {}

Saver::~Saver() {
  if (thread_.joinable()) thread_.join();
}

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
  if (auto before = finish()) report_ = std::move(before);
  if (!background) {
    report_ = write(request);
    return;
  }
  done_ = false;
  thread_ = std::thread([this, request = std::move(request)] {
    try {
      report_ = write(request);
    } catch (...) {
      failure_ = std::current_exception();
    }
    done_ = true;
  });
}

std::optional<SaveReport> Saver::take() {
  if (thread_.joinable()) thread_.join();
  if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
  return std::exchange(report_, std::nullopt);
}

std::optional<SaveReport> Saver::finish() {
  return take();
}

std::optional<SaveReport> Saver::poll() {
  return thread_.joinable() && !done_ ? std::nullopt : take();
}

}  // namespace automodel::checkpoint
