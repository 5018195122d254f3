#include "checkpoint/format/folder_claim.h"

#include <array>
#include <cerrno>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/host_name.h"

namespace automodel::checkpoint {
namespace {

constexpr const char* kFile = ".lock";  // stays behind: removing it would let two runs lock two files of this name
constexpr std::chrono::milliseconds kPause{50};

/// Returns 0, or the error number.
int try_lock(int descriptor) {
  struct flock lock {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  return fcntl(descriptor, F_SETLK, &lock) == 0 ? 0 : errno;
}

/// What the holder wrote: "HOST PID".
std::string holder(int descriptor) {
  std::array<char, 300> text{};
  const auto length = pread(descriptor, text.data(), text.size(), 0);
  return {text.data(), length > 0 ? static_cast<std::size_t>(length) : 0};
}

}  // namespace

FolderClaim::FolderClaim(const std::filesystem::path& root, std::chrono::milliseconds patience) : root_(root) {
  std::error_code ignored;
  std::filesystem::create_directories(root, ignored);
  descriptor_ = ::open((root / kFile).c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (descriptor_ < 0) return;
  const auto end = std::chrono::steady_clock::now() + patience;
  int error = try_lock(descriptor_);
  while ((error == EAGAIN || error == EACCES) && std::chrono::steady_clock::now() < end) {
    std::this_thread::sleep_for(kPause);
    error = try_lock(descriptor_);
  }
  const auto own = fmt::format("{} {}", host_name(), getpid());
  if (error == 0) {
    // Only for the message; a full disk is reported by whoever writes what matters.
    [[maybe_unused]] const bool told =
        ftruncate(descriptor_, 0) == 0 && pwrite(descriptor_, own.data(), own.size(), 0) >= 0;
    return;
  }
  if (error != EAGAIN && error != EACCES) return;  // no locks on this file system
  const auto text = holder(descriptor_);
  const auto blank = text.find(' ');
  const auto host = text.substr(0, blank);
  if (blank != text.npos && host != host_name()) {
    other_host_ = host;
    return;
  }
  close(descriptor_);
  throw Error(Diagnostic{"folder-in-use"}
                  .says("another run is writing to '{}'{}", root.native(),
                        blank == text.npos ? "" : fmt::format(" (process {})", text.substr(blank + 1)))
                  .hint("wait for it or stop it, or give this run another checkpoint.checkpoint_dir")
                  .of("checkpoint.checkpoint_dir"));
}

void FolderClaim::check() const {
  struct stat held {
  }, named{};
  if (descriptor_ < 0 || fstat(descriptor_, &held) != 0) return;
  if (stat((root_ / kFile).c_str(), &named) == 0 && held.st_ino == named.st_ino && held.st_dev == named.st_dev) return;
  throw Error(ExitCode::kCheckpoint,
              Diagnostic{"checkpoints-gone"}
                  .says("the folder '{}' was removed or replaced while the run wrote to it", root_.native())
                  .hint("bring it back, and the same command resumes; without it the run begins at step 0")
                  .of("checkpoint.checkpoint_dir"));
}

FolderClaim::~FolderClaim() {
  if (descriptor_ >= 0) close(descriptor_);
}

}  // namespace automodel::checkpoint
