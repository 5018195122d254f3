#include "checkpoint/piece_files.h"

#include <algorithm>
#include <map>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "checkpoint/agreement.h"
#include "checkpoint/format/elements.h"
#include "checkpoint/format/file.h"

namespace automodel::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kChunk = 1 << 20;  // elements converted at a time

}  // namespace

PieceFiles::PieceFiles(const std::vector<TensorPart>& parts, bool with_heads) : parts_(parts), with_heads_(with_heads) {
  for (const auto& part : parts) place(part);
  std::sort(placed_.begin(), placed_.end(),
            [](const Placed& a, const Placed& b) { return std::pair(a.file, a.offset) < std::pair(b.file, b.offset); });
}

void PieceFiles::place(const TensorPart& part) {
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
}

std::vector<Extent> PieceFiles::extents() const {
  std::vector<Extent> out;
  const auto add = [&](const Extent& next) {
    if (next.size == 0) return;
    if (!out.empty() && out.back().file == next.file && out.back().offset + out.back().size == next.offset)
      out.back().size += next.size;
    else
      out.push_back(next);
  };
  auto placed = placed_.begin();
  for (std::size_t file = 0; file < files_.size(); ++file) {
    if (with_heads_) add({file, 0, files_[file].layout->head.size()});
    for (; placed != placed_.end() && placed->file == file; ++placed)
      add({file, placed->offset, static_cast<std::uint64_t>(placed->piece->count * bits_of(placed->type) / 8)});
  }
  return out;
}

std::uint64_t PieceFiles::bytes() const {
  std::uint64_t out = 0;
  for (const auto& each : extents()) out += each.size;
  return out;
}

void PieceFiles::create(const fs::path& checkpoint, bool reserve) const {
  for (const auto& part : parts_) {
    make_folder(checkpoint / part.folder);
    for (const auto& file : part.layout.files) {
      OutputFile out(checkpoint / part.folder / file.name, OutputFile::Mode::kCreate);
      if (reserve)
        out.reserve(file.layout.file_size);
      else
        out.lengthen(file.layout.file_size);
    }
    if (!part.layout.index_name.empty())
      write_file(checkpoint / part.folder / part.layout.index_name, part.layout.index);
  }
}

void PieceFiles::write(const fs::path& checkpoint) {
  std::string buffer;
  auto placed = placed_.begin();
  for (std::size_t i = 0; i < files_.size(); ++i) {
    if (!with_heads_ && (placed == placed_.end() || placed->file != i)) continue;
    auto& file = files_[i];
    OutputFile out(checkpoint / file.name, OutputFile::Mode::kExisting);
    if (with_heads_) {
      out.write(0, file.layout->head);
      file.checksum.add(0, file.layout->head);
    }
    for (; placed != placed_.end() && placed->file == i; ++placed) write_piece(*placed, out, file, buffer);
    out.sync();
  }
}

void PieceFiles::write_piece(const Placed& placed, OutputFile& out, File& file, std::string& buffer) {
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
    file.checksum.add(offset, bytes);
    file.written += bytes.size();
  }
}

void PieceFiles::merge(comm::Communicator& group) {
  std::vector<std::uint64_t> mine;
  for (const auto& file : files_) {
    mine.push_back(file.checksum.state());
    mine.push_back(file.written);
  }
  const auto all = gather_numbers(group, mine);
  for (std::size_t rank = 0; rank < static_cast<std::size_t>(group.size()); ++rank) {
    if (rank == static_cast<std::size_t>(group.rank())) continue;
    for (std::size_t i = 0; i < files_.size(); ++i) {
      files_[i].checksum.merge(static_cast<std::uint32_t>(all[rank * mine.size() + 2 * i]));
      files_[i].written += all[rank * mine.size() + 2 * i + 1];
    }
  }
  for (const auto& file : files_)
    AUTOMODEL_CHECK(file.written + file.layout->head.size() == file.layout->file_size,
                    "ranks wrote " + std::to_string(file.written) + " bytes into " + file.name);
}

}  // namespace automodel::checkpoint
