// Writes a checkpoint collectively, synchronously or in the background.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/background.h"
#include "checkpoint/format/manifest.h"
#include "checkpoint/piece_files.h"
#include "comm/world.h"

namespace automodel::checkpoint {

/// One checkpoint to be written.
struct SaveRequest {
  std::string name = {};  ///< "epoch_0_step_99"
  std::vector<TensorPart> parts = {};
  /// Additional files: path in the checkpoint and content; only rank 0's are written.
  std::vector<std::pair<std::string, std::string>> texts = {};
  /// Additional files to copy verbatim: path in the checkpoint and source; only rank 0's are written.
  std::vector<std::pair<std::string, std::filesystem::path>> copies = {};
  RunIdentity run = {};          ///< the run that the checkpoint belongs to
  bool lowest_loss = false;      ///< point LOWEST_VAL at this checkpoint
  std::optional<int> keep = {};  ///< number of complete checkpoints to keep; absent: all
};

/// The result of a save, on every rank.
struct SaveReport {
  std::string name = {};
  std::filesystem::path path = {};
  std::uint64_t bytes = 0;
  double seconds = 0;
  std::vector<std::string> deleted = {};  ///< by retention; on rank 0 only
};

/// At most one save is in progress. A checkpoint gets its final name only after every byte has been written, flushed,
/// read back and found equal to what was in memory; a failed save leaves the older checkpoints and their links
/// untouched.
class Saver {
 public:
  /// Collective. `root` is a folder that all ranks share.
  Saver(comm::World& world, std::filesystem::path root);
  Saver(const Saver&) = delete;
  Saver& operator=(const Saver&) = delete;

  /// Starts a save; with `background` returns immediately. Waits for the previous save first. Throws Error
  /// (kCheckpoint) on all ranks if any rank fails to write (also for the previous save).
  void save(SaveRequest request, bool background);
  /// Waits for the current save. Throws as save() does. Returns its report, or that of a save that ended since the last
  /// call.
  std::optional<SaveReport> finish() { return work_.take(); }
  /// The report of a save that has ended since the last call. Throws as save() does, but does not wait.
  std::optional<SaveReport> poll() { return work_.poll(); }
  bool busy() const { return work_.busy(); }

  const std::filesystem::path& root() const { return root_; }

 private:
  SaveReport write(const SaveRequest& request);

  std::filesystem::path root_;
  std::shared_ptr<comm::Communicator> group_;  ///< used by saves only, since they run concurrently with steps
  Background<SaveReport> work_;                // last: its destructor waits for the task, which uses the other members
};

}  // namespace automodel::checkpoint
