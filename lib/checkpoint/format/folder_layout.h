// How the tensors of a model (or of an optimizer) are distributed over files. Depends only on names, shapes and a size
// limit: every rank computes the same layout.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "checkpoint/format/safetensors.h"

namespace automodel::checkpoint {

/// Location of a tensor's first byte.
struct TensorPosition {
  std::size_t file = 0;  ///< index into FolderLayout::files
  std::uint64_t offset = 0;
};

struct LaidOutFile {
  std::string name = {};
  SafetensorsLayout layout = {};
};

struct FolderLayout {
  std::vector<LaidOutFile> files = {};
  std::string index_name = {};  ///< empty if there is only one file, which needs no index
  std::string index = {};       ///< its text
  std::unordered_map<std::string, TensorPosition> positions = {};
  std::uint64_t bytes = 0;  ///< total over all tensors
};

/// Fills files of at most `most_bytes` (a larger tensor gets its own file) in the order of `tensors`, with
/// transformers' names: STEM.safetensors, or STEM-00001-of-00003.safetensors and an index.
FolderLayout lay_out_folder(const std::vector<TensorInfo>& tensors, const std::string& stem, std::uint64_t most_bytes);

}  // namespace automodel::checkpoint
