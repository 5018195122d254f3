#include "base/file_text.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

namespace automodel {
namespace {

/// Whether the path names a descriptor of this process.
bool is_own(const std::filesystem::path& path) {
  const auto& name = path.native();
  return name == "/dev/stdin" || name.starts_with("/dev/fd/") || name.starts_with("/proc/self/fd/");
}

int closed(int file, int reason) {
  close(file);
  errno = reason;
  return -1;
}

FileText refused(int reason) {
  const bool other = reason == EINVAL;
  return {.problem = other ? "it is not a regular file" : std::strerror(reason)};
}

}  // namespace

int open_regular(const std::filesystem::path& path) {
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  struct stat status {};
  if (file < 0) return -1;
  if (fstat(file, &status) != 0) return closed(file, errno);
  if (S_ISREG(status.st_mode)) return file;
  return closed(file, S_ISDIR(status.st_mode) ? EISDIR : EINVAL);
}

FileText file_text(const std::filesystem::path& path, std::uint64_t most) {
  const int file = is_own(path) ? open(path.c_str(), O_RDONLY | O_CLOEXEC) : open_regular(path);
  if (file < 0) return refused(errno);
  FileText out;
  std::array<char, 1 << 16> piece;
  for (;;) {
    const auto got = read(file, piece.data(), piece.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) out = refused(errno);
    if (got <= 0) break;
    if (out.text.size() + static_cast<std::size_t>(got) > most) {
      out = {.problem = fmt::format("it has more than {} bytes", most), .too_large = true};
      break;
    }
    out.text.append(piece.data(), static_cast<std::size_t>(got));
  }
  close(file);
  return out;
}

bool make_new_file(const std::filesystem::path& path) {
  const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (file < 0) return false;
  close(file);
  return true;
}

}  // namespace automodel
