// Which checkpoint a run goes on from, and how its numbers come back.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/format/manifest.h"
#include "checkpoint/format/run_state.h"
#include "checkpoint/format/tensor_folder.h"
#include "comm/communicator.h"
#include "train/runtime.h"
#include "train/setup.h"
#include "train/weight_files.h"

namespace automodel::train {

/// A complete, verified checkpoint that this run goes on from.
class Resume {
 public:
  /// Chooses as checkpoint.restore_from says: a folder, LATEST, or by default the newest complete checkpoint of
  /// checkpoint_dir, or takes `from`; null where there is none to go on from. Every byte of it is read and checked,
  /// each rank its share of the files. Only a checkpoint of this run (`run`) is taken without being named. Called by
  /// all ranks; throws on all of them Error (kCheckpoint): checkpoint-missing, checkpoint-damaged, manifest-syntax,
  /// state-syntax, weights-..., safetensors-...; Error (kBadInput): checkpoint-of-another-run.
  static std::unique_ptr<Resume> find(const Setup& setup, const checkpoint::RunIdentity& run, comm::Communicator& group,
                                      const std::filesystem::path& from = {});
  /// Goes on from a copy in the memory of this rank's host, which was verified when it was found.
  static std::unique_ptr<Resume> from_memory(const Setup& setup, const checkpoint::RunIdentity& run,
                                             comm::Communicator& group, const std::filesystem::path& copy);

  const std::filesystem::path& path() const { return path_; }
  const checkpoint::RunState& state() const { return state_; }
  /// Differences between the run that saved and this one that change what follows: lines for people.
  const std::vector<std::string>& warnings() const { return warnings_; }

  /// Master values where the checkpoint holds them, else the model's. Where adapters are trained: of these alone.
  parallel::WeightSource weights() const;
  /// Optimizer states and their count of steps. Throws Error (kCheckpoint, optimizer-differs).
  void restore_optimizer(Runtime& runtime) const;
  bool in_memory() const { return in_memory_; }
  /// Lets go of the files, once everything is read: removed ones take room as long as they are open.
  void close();

 private:
  Resume() = default;
  static std::unique_ptr<Resume> open(const Setup& setup, const checkpoint::RunIdentity& run, comm::Communicator& group,
                                      const std::filesystem::path& path);
  std::filesystem::path path_;
  bool in_memory_ = false;
  checkpoint::RunState state_;
  std::vector<std::string> warnings_;
  std::shared_ptr<const WeightFiles> model_;      ///< null where adapters are trained
  std::shared_ptr<const AdapterFiles> adapters_;  ///< null where not
  std::shared_ptr<const checkpoint::TensorFolder> optimizer_;
};

}  // namespace automodel::train
