// The safetensors format: an 8-byte header length (little-endian), a JSON header padded with spaces so that the data is
// 8-byte aligned, then the tensors' bytes, row-major and little-endian.
//
// The header maps a name to {"dtype": "F32", "shape": [2, 3], "data_offsets": [begin, end]}, with offsets relative to
// the start of the data; "__metadata__" maps strings to strings. Headers are untrusted until checked against the file
// size: a header cannot make the reader allocate more than its own length.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/diagnostic.h"
#include "base/utf8.h"
#include "checkpoint/format/element_type.h"

namespace automodel::checkpoint {

struct TensorInfo {
  std::string name = {};
  ElementType type = ElementType::kF32;
  std::vector<std::int64_t> shape = {};
  std::uint64_t begin = 0;  ///< bytes [begin, end), relative to the start of the data
  std::uint64_t end = 0;
  std::uint64_t bytes() const { return end - begin; }
  std::int64_t elements() const;
  bool operator==(const TensorInfo&) const = default;
};

/// "F32 [2, 3]".
std::string describe(const TensorInfo& tensor);

struct SafetensorsHeader {
  std::vector<TensorInfo> tensors = {};  ///< in data order, contiguous
  std::vector<std::pair<std::string, std::string>> metadata = {};
  std::uint64_t data_begin = 0;  ///< offset in the file
  std::uint64_t file_size = 0;
};

/// Maximum header length, as in the format's reference implementation.
inline constexpr std::uint64_t kLongestHeader = 100'000'000;

/// Length of the JSON text after the first eight bytes. `head`: at least the first eight bytes of a file of `file_size`
/// bytes, or the whole file if it is shorter. Problems (reported for `file`): safetensors-truncated,
/// safetensors-header.
std::optional<std::uint64_t> header_length(std::string_view head, std::uint64_t file_size, std::string_view file,
                                           Diagnostics& problems);
/// Parses the JSON text. Problems: safetensors-header (invalid JSON, or not the format's structure), safetensors-dtype,
/// safetensors-shape (inconsistent with the byte count), safetensors-offsets (overlap, gap, end before begin),
/// safetensors-truncated (the file is shorter or longer than the header says), safetensors-duplicate. Reports all
/// problems, up to twenty.
std::optional<SafetensorsHeader> parse_header(std::string_view json, std::uint64_t file_size, std::string_view file,
                                              Diagnostics& problems);

/// Size of a tensor of this type and shape in bytes; empty if that is not a whole number or exceeds 2^62.
std::optional<std::uint64_t> tensor_bytes(ElementType type, const std::vector<std::int64_t>& shape);

/// The layout of a file to be written.
struct SafetensorsLayout {
  std::string head = {};                 ///< everything before the data
  std::vector<TensorInfo> tensors = {};  ///< in data order, offsets filled in
  std::uint64_t file_size = 0;
  /// File offset of a tensor's first byte.
  std::uint64_t position(const TensorInfo& tensor) const { return head.size() + tensor.begin; }
};

/// Orders tensors (their offsets are ignored) as the format's reference implementation does: wider types first, then by
/// name. The metadata is {"format": "pt"}, which readers expect, plus `metadata`.
SafetensorsLayout lay_out(std::vector<TensorInfo> tensors,
                          const std::vector<std::pair<std::string, std::string>>& metadata = {});

/// Bytes of a name from a file that a message shows: printable(name, kMostShown).
constexpr std::size_t kMostShown = 200;

}  // namespace automodel::checkpoint
