#include "checkpoint/format/memory_folder.h"

#include <cerrno>
#include <cstdlib>
#include <string>

#include <fmt/format.h>
#include <pwd.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/text_hash.h"
#include "checkpoint/format/file.h"

namespace automodel::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kBlock = 512;  // unit of st_blocks

std::string user_name() {
  const auto* entry = getpwuid(getuid());
  return entry != nullptr ? entry->pw_name : std::to_string(getuid());
}

/// Space used by all files below; holes do not count.
std::uint64_t used_by(const fs::path& folder) {
  std::uint64_t out = 0;
  std::error_code error;
  for (fs::recursive_directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    struct stat status {};
    if (lstat(it->path().c_str(), &status) == 0) out += static_cast<std::uint64_t>(status.st_blocks) * kBlock;
  }
  return out;
}

}  // namespace

fs::path memory_root() {
  const char* other = std::getenv("AUTOMODEL_MEMORY_DIR");
  return other != nullptr && *other != '\0' ? other : "/dev/shm";
}

fs::path memory_folder(const fs::path& run_folder) {
  std::error_code error;
  auto path = fs::weakly_canonical(fs::absolute(run_folder, error), error);
  if (!path.has_filename()) path = path.parent_path();  // "run/" is "run"
  TextHash hash;
  hash.mix(path.native());
  return memory_root() / fmt::format("automodel-{}-{:016x}", user_name(), hash.value());
}

void make_memory_folder(const fs::path& folder) {
  if (mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST)
    fail_unwritable(fmt::format("the folder '{}' cannot be made", folder.native()), errno);
}

std::optional<std::uint64_t> memory_room(const fs::path& folder) {
  struct statvfs space {};
  if (statvfs(folder.parent_path().c_str(), &space) != 0 || access(folder.parent_path().c_str(), W_OK | X_OK) != 0)
    return std::nullopt;
  struct stat status {};
  // /dev/shm is world-writable: the name must be a folder owned by this user, not a link.
  if (lstat(folder.c_str(), &status) == 0 && (!S_ISDIR(status.st_mode) || status.st_uid != getuid()))
    return std::nullopt;
  return static_cast<std::uint64_t>(space.f_bavail) * space.f_frsize + used_by(folder);
}

}  // namespace automodel::checkpoint
