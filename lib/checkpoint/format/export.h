// The model of a checkpoint as a Hugging Face folder of its own: whole files, another type, adapters merged.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "checkpoint/format/element_type.h"

namespace automodel::checkpoint {

struct ExportOptions {
  std::optional<ElementType> type = {};  ///< of the weights; absent: as they are stored
  bool merge = false;                    ///< add adapters to their base model
  std::string base = {};                 ///< folder of the base model; "": the one that the adapters name
};

struct ExportReport {
  std::size_t tensors = 0;
  std::size_t merged = 0;  ///< of them
  std::uint64_t bytes = 0;
};

/// The `model` folder that `path` means: a checkpoint, a folder of checkpoints (its newest), or a model folder itself.
/// Throws Error (kCheckpoint, checkpoint-missing).
std::filesystem::path model_folder_of(const std::filesystem::path& path);

/// Writes weights, config.json and tokenizer files into the new folder `out`, which gets its name when it is whole. A
/// checkpoint's files are checked against its manifest first. Throws Error: kCheckpoint (damaged, cannot be read or
/// written), kBadInput (`out` exists; nothing to merge; the adapters fit another model).
ExportReport export_model(const std::filesystem::path& from, const std::filesystem::path& out,
                          const ExportOptions& options);

}  // namespace automodel::checkpoint
