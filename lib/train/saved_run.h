// The content of a checkpoint: weights, optimizer states, and the position of the run.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "checkpoint/format/run_state.h"
#include "checkpoint/format/tensor_folder.h"
#include "comm/communicator.h"
#include "train/runtime.h"
#include "train/setup.h"
#include "train/weight_files.h"

namespace automodel::train {

/// The open files of a complete, verified checkpoint.
class SavedRun {
 public:
  /// Collective; if it fails on any rank, throws on all of them Error (kCheckpoint): state-syntax, weights-...,
  /// safetensors-....
  static std::unique_ptr<SavedRun> open(const Setup& setup, comm::Communicator& group,
                                        const std::filesystem::path& path);

  const checkpoint::RunState& state() const { return state_; }
  /// Differences from the run that saved the checkpoint, as far as they affect training, as lines for people.
  const std::vector<std::string>& warnings() const { return warnings_; }

  /// Source of master values if the checkpoint has them, else of the model's. If adapters are trained: only theirs.
  parallel::WeightSource weights() const;
  /// Restores optimizer states and the step count. Throws Error (kCheckpoint, optimizer-differs).
  void restore_optimizer(Runtime& runtime) const;

 private:
  SavedRun() = default;
  std::filesystem::path path_;
  checkpoint::RunState state_;
  std::vector<std::string> warnings_;
  std::shared_ptr<const WeightFiles> model_;      ///< null if adapters are trained
  std::shared_ptr<const AdapterFiles> adapters_;  ///< null unless adapters are trained
  std::shared_ptr<const checkpoint::TensorFolder> optimizer_;
};

}  // namespace automodel::train
