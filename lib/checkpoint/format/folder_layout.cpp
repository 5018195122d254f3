#include "checkpoint/format/folder_layout.h"

#include <utility>

#include "checkpoint/format/shard_index.h"

namespace automodel::checkpoint {

FolderLayout lay_out_folder(const std::vector<TensorInfo>& tensors, const std::string& stem, std::uint64_t most_bytes) {
  std::vector<std::vector<TensorInfo>> groups(1);
  FolderLayout out;
  std::uint64_t size = 0;
  for (const auto& tensor : tensors) {
    const auto bytes = tensor_bytes(tensor.type, tensor.shape).value();
    if (!groups.back().empty() && size + bytes > most_bytes) {
      groups.emplace_back();
      size = 0;
    }
    groups.back().push_back(tensor);
    size += bytes;
    out.bytes += bytes;
  }
  ShardIndex index{.total_size = out.bytes};
  for (std::size_t i = 0; i < groups.size(); ++i) {
    LaidOutFile file{groups.size() == 1 ? stem + ".safetensors" : shard_name(stem, i + 1, groups.size()),
                     lay_out(std::move(groups[i]))};
    for (const auto& tensor : file.layout.tensors) {
      out.positions[tensor.name] = {i, file.layout.position(tensor)};
      index.files[tensor.name] = file.name;
    }
    out.files.push_back(std::move(file));
  }
  if (out.files.size() > 1) {
    out.index_name = stem + ".safetensors.index.json";
    out.index = to_json(index);
  }
  return out;
}

}  // namespace automodel::checkpoint
