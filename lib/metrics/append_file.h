// An append-only file, written record by record.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

namespace automodel::metrics {

/// Each append is a single write(2), so a reader never sees half a record and a crash loses no buffered ones.
class AppendFile {
 public:
  enum class Mode { kNew, kExisting };  ///< kNew: an existing file is an error

  /// Throws Error (environment, `unwritable-file`) if the file cannot be opened.
  AppendFile(std::filesystem::path path, Mode mode);
  ~AppendFile();
  AppendFile(const AppendFile&) = delete;
  AppendFile& operator=(const AppendFile&) = delete;

  /// Truncates the file to `size` bytes. Throws Error if that fails.
  void truncate(std::int64_t size);
  /// A failure (such as a full disk) is logged once and does not end the run; a record that did not fit leaves nothing
  /// behind, and is written with a later one, or at the end.
  void append(std::string_view record);
  const std::filesystem::path& path() const { return path_; }

 private:
  void write_waiting();

  std::filesystem::path path_;
  int file_ = -1;
  bool failing_ = false;
  std::string waiting_ = {};  ///< records that could not be written, at most kMostWaiting bytes: then they are lost
};

/// Throws the Error for a metrics file that cannot be written.
[[noreturn]] void fail_unwritable(const std::filesystem::path& path, const std::string& reason);

}  // namespace automodel::metrics
