// The .idx file of Megatron's indexed datasets.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "data/token_sequence.h"

namespace automodel::data {

/// Layout, little-endian: "MMIDIDX\0\0", version (64 bits, 1), token type (8 bits), number of sequences and of document
/// bounds (64 bits each), sequence lengths (32 bits each), byte offsets of the sequences in the .bin file (64 bits
/// each), document bounds as sequence indices (64 bits each, starting with 0) and, for some data, one mode byte per
/// sequence.
struct MegatronIndex {
  TokenType type = TokenType::kInt32;
  std::vector<MappedSequence::Span> sequences = {};  ///< empty ones dropped; `file` is 0
  std::vector<std::size_t> documents = {};           ///< where each begins in `sequences`, then the end of the last
};

/// Reads an index whose tokens are in a .bin file of `bin_size` bytes; every span is checked to be within it, and
/// counts are checked against the index size. Null after setting `problem`.
std::optional<MegatronIndex> read_megatron_index(std::string_view index, std::uint64_t bin_size, std::string& problem);

}  // namespace automodel::data
