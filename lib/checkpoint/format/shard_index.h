// The index of a model that is spread over several safetensors files: which tensor stands in which file.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "base/diagnostic.h"

namespace automodel::checkpoint {

struct ShardIndex {
  std::map<std::string, std::string> files = {};  ///< tensor name to file name
  std::optional<std::uint64_t> total_size = {};   ///< bytes of all tensors, where the index says
};

/// Reads the text of a model.safetensors.index.json. A file name must stay inside the folder: it is relative and has no
/// "..". Problems (named after `file`): index-syntax, index-path, index-duplicate; at most twenty.
std::optional<ShardIndex> parse_shard_index(std::string_view text, std::string_view file, Diagnostics& problems);

std::string to_json(const ShardIndex& index);

/// "model-00002-of-00007.safetensors"; `number` counts from 1.
std::string shard_name(std::string_view stem, std::size_t number, std::size_t count);

}  // namespace automodel::checkpoint
