// Files for checkpoints: read and written at offsets, flushed to disk, with every failure named.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "base/diagnostic.h"

namespace automodel::checkpoint {

/// Whether there is such a file or folder; not where that cannot be told.
bool is_there(const std::filesystem::path& path);

/// Open for reading. Reads fail with an Error (kCheckpoint, `cannot-read`) and not with a signal, as a mapping would
/// when a file is truncated or a disk fails.
class InputFile {
 public:
  /// Empty after the problem `cannot-read`.
  static std::optional<InputFile> open(const std::filesystem::path& path, Diagnostics& problems);
  ~InputFile();
  InputFile(InputFile&& other) noexcept;
  InputFile& operator=(InputFile&&) = delete;

  const std::filesystem::path& path() const { return path_; }
  std::uint64_t size() const { return size_; }
  /// Bytes [offset, offset + size) into `out`. May be called from several threads.
  void read(std::uint64_t offset, char* out, std::uint64_t size) const;

 private:
  InputFile() = default;
  std::filesystem::path path_;
  int descriptor_ = -1;
  std::uint64_t size_ = 0;
};

/// Open for writing at offsets; several processes may write different parts of one file. Failures are Errors
/// (kCheckpoint, `cannot-write`) that name the file, the offset and the system's reason.
class OutputFile {
 public:
  enum class Mode { kCreate, kExisting };  ///< kCreate: a file that is there already is an error
  OutputFile(std::filesystem::path path, Mode mode);
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  /// Gives the file its size and, where the file system can, the blocks for it: a full disk is found before anything
  /// is written.
  void reserve(std::uint64_t size);
  /// Gives the file its size alone: unwritten parts read as zeros and occupy no space.
  void lengthen(std::uint64_t size);
  void write(std::uint64_t offset, std::string_view bytes);
  /// Everything written is on the disk when this returns.
  void sync();

 private:
  [[noreturn]] void fail(const std::string& what, int error) const;
  std::filesystem::path path_;
  int descriptor_ = -1;
};

/// Creates `path` with this content, on the disk when this returns.
void write_file(const std::filesystem::path& path, std::string_view text);
/// The whole content; empty after the problem `cannot-read` (a missing file, or one longer than `longest`).
std::optional<std::string> read_file(const std::filesystem::path& path, Diagnostics& problems,
                                     std::uint64_t longest = std::uint64_t{1} << 30);
/// Makes a new folder, or renames inside one, survive a crash.
void make_folder(const std::filesystem::path& path);
void sync_folder(const std::filesystem::path& path);

/// The Error of a checkpoint that cannot be written: `what` names the file and the operation.
[[noreturn]] void fail_unwritable(const std::string& what, int error);

}  // namespace automodel::checkpoint
