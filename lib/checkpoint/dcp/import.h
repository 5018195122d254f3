// Turns a run of another trainer into a checkpoint of this program.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "arch/layout.h"
#include "arch/model_spec.h"
#include "checkpoint/dcp/foreign_run.h"
#include "checkpoint/format/run_state.h"

namespace automodel::checkpoint {

struct ImportWish {
  const arch::ModelSpec& spec;
  const arch::Layout& layout;
  std::vector<std::pair<std::string, std::string>> texts = {};  ///< further files of model/: name and content
  std::vector<std::filesystem::path> copies = {};               ///< files to copy there
  RunState state = {};  ///< what the recipe says; step, samples, epoch and optimizer are filled in
};

struct ImportReport {
  std::int64_t steps = 0;
  std::size_t weights = 0, states = 0;  ///< tensors
  std::uint64_t bytes = 0;
  std::vector<std::string> lines = {};  ///< what is missing or left out
};

/// The type of most weights.
ElementType weight_type(const ForeignRun& run);

/// Writes the checkpoint `out`, which gets its name only once it is complete. Tensors pass through in pieces of a few
/// MiB. Throws Error: kCheckpoint (checkpoint-damaged, weights-..., cannot-read, cannot-write), kBadInput (`out`
/// exists).
ImportReport import_run(const ForeignRun& run, const std::filesystem::path& out, const ImportWish& wish);

}  // namespace automodel::checkpoint
