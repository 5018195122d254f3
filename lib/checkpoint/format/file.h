// File access for checkpoints: reads and writes at offsets, flushing, with detailed error reports.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/diagnostic.h"

namespace automodel::checkpoint {

/// Whether the file or folder exists. Throws Error (cannot-read) if the file system does not say: what it fails to find
/// may be the newest checkpoint.
bool is_there(const std::filesystem::path& path);
/// What a folder holds; nothing if it does not exist. Throws Error (cannot-read) if it cannot be read to its end.
std::vector<std::filesystem::path> entries_of(const std::filesystem::path& folder);

/// A file open for reading. Failed reads throw Error (kCheckpoint, `cannot-read`) instead of raising a signal, as a
/// mapping would if the file is truncated or a disk fails.
class InputFile {
 public:
  /// Empty after adding the problem `cannot-read`.
  static std::optional<InputFile> open(const std::filesystem::path& path, Diagnostics& problems);
  ~InputFile();
  InputFile(InputFile&& other) noexcept;
  InputFile& operator=(InputFile&&) = delete;

  const std::filesystem::path& path() const { return path_; }
  std::uint64_t size() const { return size_; }
  /// Reads bytes [offset, offset + size) into `out`. Thread-safe.
  void read(std::uint64_t offset, char* out, std::uint64_t size) const;

 private:
  InputFile() = default;
  std::filesystem::path path_;
  int descriptor_ = -1;
  std::uint64_t size_ = 0;
};

/// A file open for writing at offsets; several processes may write different parts of the same file. Failures are
/// Errors (kCheckpoint, `cannot-write`) with the file, the offset and the system's reason.
class OutputFile {
 public:
  enum class Mode { kCreate, kExisting };  ///< kCreate: an existing file is an error
  OutputFile(std::filesystem::path path, Mode mode);
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  /// Sets the file's size and allocates its blocks if the file system supports it, so that a full disk is detected
  /// before anything is written.
  void reserve(std::uint64_t size);
  /// Only sets the file's size: unwritten parts read as zeros and take no space.
  void lengthen(std::uint64_t size);
  void write(std::uint64_t offset, std::string_view bytes);
  /// Everything written is on disk when this returns.
  void sync();

 private:
  [[noreturn]] void fail(const std::string& what, int error) const;
  std::filesystem::path path_;
  int descriptor_ = -1;
};

/// Creates `path` with this content, which is on disk when this returns.
void write_file(const std::filesystem::path& path, std::string_view text);
/// The whole content; empty after the problem `cannot-read` (a file that is missing, or longer than `longest`).
std::optional<std::string> read_file(const std::filesystem::path& path, Diagnostics& problems,
                                     std::uint64_t longest = std::uint64_t{1} << 30);
/// make_folder: creates a folder. sync_folder: makes new entries and renames in a folder survive a crash.
void make_folder(const std::filesystem::path& path);
void sync_folder(const std::filesystem::path& path);

/// Throws Error (bad-value) if `out` exists; `kind`, "folder" or "file", is what to name instead.
void require_new(const std::filesystem::path& out, std::string_view kind);
/// Makes a file or folder that is whole once it has its name: calls `write` with a path beside `out`, which is renamed
/// afterwards. Makes the folders above. Removes what an earlier attempt left, and what a failed one leaves. Throws what
/// `write` throws, and Error (cannot-write).
void make_new(const std::filesystem::path& out, const std::function<void(const std::filesystem::path&)>& write);

/// A number's lowest `bytes` bytes, the lowest first.
std::string little_endian(std::uint64_t value, std::size_t bytes);

/// Throws the Error for a checkpoint that cannot be written; `what` names the file and the operation.
[[noreturn]] void fail_unwritable(const std::string& what, int error);

}  // namespace automodel::checkpoint
