// Exports a checkpoint's model as a self-contained Hugging Face folder: whole files, optionally converted to another
// type, adapters optionally merged.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "checkpoint/format/element_type.h"

namespace automodel::checkpoint {

struct ExportOptions {
  std::optional<ElementType> type = {};  ///< of the weights; absent: as stored
  bool merge = false;                    ///< merge adapters into their base model
  std::string base = {};                 ///< folder of the base model; "": the one that the adapters name
};

struct ExportReport {
  std::size_t tensors = 0;
  std::size_t merged = 0;  ///< how many of them have a merged adapter
  std::uint64_t bytes = 0;
};

/// The model folder that `path` refers to: that of a checkpoint, of the newest checkpoint in a folder, or a model
/// folder itself. Throws Error (kCheckpoint, checkpoint-missing).
std::filesystem::path model_folder_of(const std::filesystem::path& path);

/// Verifies the model files of a checkpoint against its manifest; any other folder passes. Throws Error (kCheckpoint,
/// checkpoint-damaged, manifest-syntax).
void check_model_files(const std::filesystem::path& model);

/// Writes weights, config.json and tokenizer files to the new folder `out`, which gets its name only once it is
/// complete. A checkpoint's files are verified against its manifest first. Throws Error: kCheckpoint (damaged, cannot
/// be read or written), kBadInput (`out` exists; nothing to merge; the adapters belong to another model).
ExportReport export_model(const std::filesystem::path& from, const std::filesystem::path& out,
                          const ExportOptions& options);

}  // namespace automodel::checkpoint
