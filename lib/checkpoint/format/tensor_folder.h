// All tensors of a folder of safetensors files, as one table.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "checkpoint/format/tensor_file.h"

namespace automodel::checkpoint {

/// A tensor and where it stands; valid as long as its folder.
struct StoredTensor {
  const TensorFile* file = nullptr;
  const TensorInfo* info = nullptr;
  explicit operator bool() const { return info != nullptr; }
};

class TensorFolder {
 public:
  /// Opens STEM.safetensors or, where that is absent, all files of STEM.safetensors.index.json, as transformers
  /// chooses. Every file is checked before anything is read. Problems, all of them: missing-weights (neither is there;
  /// says so where there are PyTorch pickles), index-... (shard_index.h), index-missing-tensor (a file lacks what the
  /// index places in it), safetensors-..., cannot-read. Tensors that no index names are taken as they stand.
  static std::optional<TensorFolder> open(const std::filesystem::path& folder, std::string_view stem,
                                          Diagnostics& problems);

  const std::filesystem::path& path() const { return path_; }
  /// False where there is no such tensor.
  StoredTensor find(std::string_view name) const;
  /// In the order of files and of the tensors in them.
  const std::vector<StoredTensor>& tensors() const { return tensors_; }
  const std::vector<std::unique_ptr<TensorFile>>& files() const { return files_; }

 private:
  TensorFolder() = default;
  bool add_file(const std::filesystem::path& path, Diagnostics& problems);

  std::filesystem::path path_ = {};
  std::vector<std::unique_ptr<TensorFile>> files_ = {};
  std::vector<StoredTensor> tensors_ = {};
  std::unordered_map<std::string_view, std::size_t> index_ = {};
};

/// True where `folder` has weights under `stem`.
bool has_tensors(const std::filesystem::path& folder, std::string_view stem);

}  // namespace automodel::checkpoint
