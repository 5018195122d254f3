// The index of a model split over several safetensors files: which file holds which tensor.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "base/diagnostic.h"

namespace automodel::checkpoint {

struct ShardIndex {
  std::map<std::string, std::string> files = {};  ///< tensor name -> file name
  std::optional<std::uint64_t> total_size = {};   ///< bytes of all tensors, if the index has it
};

/// Parses a model.safetensors.index.json. File names must be relative and stay inside the folder (no ".."). Problems
/// (reported for `file`): index-syntax, index-path, index-duplicate; at most twenty.
std::optional<ShardIndex> parse_shard_index(std::string_view text, std::string_view file, Diagnostics& problems);

std::string to_json(const ShardIndex& index);

/// "model-00002-of-00007.safetensors"; `number` starts at 1.
std::string shard_name(std::string_view stem, std::size_t number, std::size_t count);

}  // namespace automodel::checkpoint
