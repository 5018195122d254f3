// Exports a model as a GGUF file for llama.cpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>

#include "checkpoint/gguf/gguf_head.h"

namespace automodel::checkpoint {

struct GgufReport {
  std::size_t tensors = 0;
  std::uint64_t bytes = 0;
  std::string vocabulary = {};  ///< what the tokenizer is, for people
};

/// Writes the model of `from` (as model_folder_of) into the new file `out`, which gets its name only once it is
/// complete. Matrices are of `type` (rows that do not consist of whole blocks of Q8_0: F16), vectors and routers F32. A
/// checkpoint's files are verified first. Throws Error: kCheckpoint (damaged, cannot be read or written), kBadInput
/// (`out` exists, adapters, unsupported-model, bad-tokenizer, values that F16 does not have).
GgufReport export_gguf(const std::filesystem::path& from, const std::filesystem::path& out, GgufType type);

}  // namespace automodel::checkpoint
