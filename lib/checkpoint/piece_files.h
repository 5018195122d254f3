// The tensor files of a checkpoint, into which this rank writes its pieces.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "base/crc32c.h"
#include "checkpoint/format/folder_layout.h"
#include "checkpoint/format/manifest.h"
#include "comm/communicator.h"

namespace automodel::checkpoint {

/// Elements [first, first + count) of a checkpoint tensor, row-major, in host memory.
struct Piece {
  std::string tensor = {};
  std::int64_t first = 0;
  std::int64_t count = 0;
  ElementType type = ElementType::kF32;  ///< type in memory; converted if the file has another
  const char* data = nullptr;            ///< must stay valid and unchanged until the save is over
};

/// A folder of tensors in the checkpoint, and what this rank writes of it. The layout is the same on all ranks; each
/// element of each tensor is written by exactly one of them.
struct TensorPart {
  std::string folder = {};  ///< "model"
  FolderLayout layout = {};
  std::vector<Piece> pieces = {};
};

/// Bytes [offset, offset + size) of a tensor file.
struct Extent {
  std::uint64_t file = 0;  ///< index of the file, in name order
  std::uint64_t offset = 0;
  std::uint64_t size = 0;
  bool operator==(const Extent&) const = default;
};

class PieceFiles {
 public:
  struct File {
    std::string name;  ///< path in the checkpoint
    const SafetensorsLayout* layout;
    PiecewiseCrc32c checksum;   ///< of what this rank wrote; after merge(), of the whole file
    std::uint64_t written = 0;  ///< bytes of data written by this rank; after merge(), by all ranks
  };

  /// `parts` must outlive this object. `with_heads`: this rank writes the file headers; exactly one rank must.
  PieceFiles(const std::vector<TensorPart>& parts, bool with_heads);

  const std::vector<File>& files() const { return files_; }
  /// What this rank writes, sorted by file and offset, including headers.
  std::vector<Extent> extents() const;
  std::uint64_t bytes() const;  ///< total of extents()

  /// Creates the folders of the parts and their files at full length, without content. `reserve`: allocates blocks, so
  /// that a full disk is detected before anything is written. Call on one rank, before any rank writes.
  void create(const std::filesystem::path& checkpoint, bool reserve) const;
  /// Writes this rank's pieces, and the headers, into `checkpoint`.
  void write(const std::filesystem::path& checkpoint);
  /// Combines the ranks' checksums into whole-file checksums.
  void merge(comm::Communicator& group);
  static ManifestEntry entry_of(const File& file) { return {file.name, file.layout->file_size, file.checksum.value()}; }

 private:
  /// A piece and its destination.
  struct Placed {
    const Piece* piece;
    ElementType type;      ///< in the file
    std::size_t file;      ///< index into files_
    std::uint64_t offset;  ///< of its first byte
  };
  void place(const TensorPart& part);
  void write_piece(const Placed& placed, class OutputFile& out, File& file, std::string& buffer);

  const std::vector<TensorPart>& parts_;
  bool with_heads_;
  std::vector<File> files_;
  std::vector<Placed> placed_;
};

}  // namespace automodel::checkpoint
