// Tensors that are stored in parts, each a box of elements.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "checkpoint/dcp/archive.h"
#include "checkpoint/format/element_type.h"

namespace automodel::checkpoint {

/// A box of a tensor: elements [offsets, offsets + sizes) in every dimension, row-major.
struct Chunk {
  std::vector<std::int64_t> offsets = {}, sizes = {};
  FilePart part = {};  ///< an archive with the elements, or the elements
  bool archived = false;
};

struct ChunkedTensor {
  std::string name = {};
  ElementType type = ElementType::kF32;
  std::vector<std::int64_t> shape = {};
  std::vector<Chunk> chunks = {};
};

/// Checks that the chunks are boxes of the tensor that cover each element exactly once. Throws Error (kCheckpoint):
/// checkpoint-damaged, reported for the file `where`.
void check_cover(const ChunkedTensor& tensor, const std::string& where);

/// Where row `row` (index of the first dimension) of the stored tensor belongs; empty: rows stay where they are.
using RowOrder = std::function<std::int64_t(std::int64_t row)>;

/// Calls `write(element, bytes)` for runs of the elements [first, first + count) of the whole tensor, in any order,
/// each element once; `element` is relative to `first`. Reads at most a few MiB at a time. Throws Error (kCheckpoint):
/// those of Archive, and checkpoint-damaged where an archive holds another tensor than the chunk.
void for_each_run(const ChunkedTensor& tensor, std::int64_t first, std::int64_t count, const RowOrder& order,
                  const std::function<void(std::int64_t element, std::string_view bytes)>& write);

}  // namespace automodel::checkpoint
