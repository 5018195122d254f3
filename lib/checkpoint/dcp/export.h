// A checkpoint of this program as one of torch.distributed.checkpoint: the way back to the trainers that import.h takes
// runs from.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "checkpoint/dcp/dcp_writer.h"
#include "checkpoint/dcp/foreign_run.h"

namespace automodel::checkpoint {

/// What PyTorch's optimizer keeps beside its states.
struct OptimizerSettings {
  double lr = 0, initial_lr = 0;  ///< of the next step; of the schedule's peak
  double weight_decay = 0;
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-8;  ///< Adam's
  bool amsgrad = false;
  double momentum = 0, dampening = 0;  ///< SGD's
  bool nesterov = false;
  bool maximize = false;
};

struct DcpExport {
  ForeignLayout layout = ForeignLayout::kTorch;  ///< whose names: not accelerate's
  OptimizerSettings settings = {};
  std::uint64_t largest_part = DcpWriter::kLargestPart;
};

struct DcpReport {
  std::size_t weights = 0, states = 0;  ///< tensors
  std::int64_t steps = 0;
  std::uint64_t bytes = 0;
  std::vector<std::string> lines = {};  ///< what a reader should know
};

/// Writes weights, states of the optimizer and the number of steps of the checkpoint (or newest checkpoint, or model
/// folder, which has weights only) `from` to the new folder `out`, which gets its name only once it is complete.
/// Weights are the optimizer's master values where it has them. A checkpoint's files are verified first. Throws Error:
/// kCheckpoint (damaged, cannot be read or written, names that torchtitan does not have), kBadInput (`out` exists;
/// adapters; an optimizer that PyTorch does not have in one piece).
DcpReport export_dcp(const std::filesystem::path& from, const std::filesystem::path& out, const DcpExport& wish);

}  // namespace automodel::checkpoint
