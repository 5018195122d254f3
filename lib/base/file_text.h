// The text of files that somebody named: what is read is bounded, and nothing waits for a file that has no end.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace automodel {

/// Bytes of what stands beside weights and data: configurations, cards, lists of files. Parsed, they take up to twenty
/// times that.
inline constexpr std::uint64_t kMostDescription = std::uint64_t{16} << 20;

struct FileText {
  std::string text = {};
  std::string problem = {};  ///< why there is no text; empty if there is
  bool too_large = false;    ///< the problem is the size
};

/// Reads a regular file of at most `most` bytes. /dev/stdin and /dev/fd/N, which name what the caller opened itself,
/// may be pipes; any other pipe, socket or device is refused without being waited for.
FileText file_text(const std::filesystem::path& path, std::uint64_t most);

/// Opens a regular file for reading; -1, with errno set, if it cannot be opened or is something else (EINVAL; EISDIR
/// for a folder). Does not wait for the other end of a pipe. The caller closes it.
int open_regular(const std::filesystem::path& path);

/// Makes an empty file that was not there, so that in a folder that others write to (caches may be below TMPDIR) no
/// link of theirs is followed. False, with errno set, if that fails.
bool make_new_file(const std::filesystem::path& path);

}  // namespace automodel
