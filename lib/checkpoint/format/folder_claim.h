// Keeps two runs from writing to the same folder at once: they would mix their records and delete each other's
// half-written checkpoints.
#pragma once

#include <chrono>
#include <filesystem>
#include <string>

namespace automodel::checkpoint {

/// Holds a run's folder for as long as it lives, or until its process ends, however it ends. The lock is POSIX's
/// (F_SETLK), which forked processes do not inherit and NFS knows; where a file system has no locks, or the folder
/// cannot be made or written to, nothing is held. One per process and folder: POSIX locks do not exclude their own
/// process.
class FolderClaim {
 public:
  /// Waits up to `patience` for an earlier run, whose ranks may just be ending. Throws Error (kEnvironment,
  /// folder-in-use) if a process on this host still holds the folder.
  FolderClaim(const std::filesystem::path& root, std::chrono::milliseconds patience);
  ~FolderClaim();
  FolderClaim(const FolderClaim&) = delete;
  FolderClaim& operator=(const FolderClaim&) = delete;

  /// Throws Error (kCheckpoint, checkpoints-gone) if the folder has been removed or replaced since: another run would
  /// be let in, and this one would save where nobody looks.
  void check() const;

  /// The holder if it is on another host, else empty. It may be a host that was lost, whose locks the file server has
  /// not released yet; so that is no error.
  const std::string& other_host() const { return other_host_; }

 private:
  std::filesystem::path root_;
  int descriptor_ = -1;
  std::string other_host_;
};

}  // namespace automodel::checkpoint
