// All tensors of a folder of safetensors files, as one collection.
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

/// A tensor and the file that holds it; valid as long as its TensorFolder.
struct StoredTensor {
  const TensorFile* file = nullptr;
  const TensorInfo* info = nullptr;
  explicit operator bool() const { return info != nullptr; }
};

class TensorFolder {
 public:
  /// Opens STEM.safetensors or, if absent, all files of STEM.safetensors.index.json, in the same order of preference as
  /// transformers. Every header is validated before any data is read. Problems, all of which are reported:
  /// missing-weights (neither file exists; mentions PyTorch pickles if there are any), index-... (shard_index.h),
  /// index-missing-tensor (a file lacks a tensor that the index places in it), safetensors-..., cannot-read. Tensors
  /// that the index does not list are included.
  static std::optional<TensorFolder> open(const std::filesystem::path& folder, std::string_view stem,
                                          Diagnostics& problems);

  const std::filesystem::path& path() const { return path_; }
  /// False (as a bool) if there is no such tensor.
  StoredTensor find(std::string_view name) const;
  /// In order of files, then of the tensors in them.
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

/// Whether `folder` has weights under `stem`.
bool has_tensors(const std::filesystem::path& folder, std::string_view stem);

}  // namespace automodel::checkpoint
