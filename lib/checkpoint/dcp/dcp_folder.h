// A folder that torch.distributed.checkpoint has written: `.metadata` says which tensors there are and in which
// archives of the .distcp files their parts lie.
//
// The format is that of torch.distributed.checkpoint.metadata and .filesystem in PyTorch 2.x.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/dcp/chunks.h"

namespace automodel::checkpoint {

inline constexpr const char* kDcpMetadata = ".metadata";

class DcpFolder {
 public:
  /// Reads .metadata, checks that every part lies in its file and that the parts of every tensor cover it, and reads
  /// all values that are not tensors. Throws Error (kCheckpoint): checkpoint-damaged, cannot-read.
  explicit DcpFolder(const std::filesystem::path& folder);

  const std::filesystem::path& path() const { return path_; }
  const std::map<std::string, ChunkedTensor>& tensors() const { return tensors_; }
  /// Null if there is none of this name.
  const ChunkedTensor* tensor(const std::string& name) const;
  /// A value, or a tensor of one element, as a number; empty if there is none.
  std::optional<double> number(const std::string& name) const;
  /// The number of ranks that wrote the files.
  int ranks() const { return ranks_; }

 private:
  void read_storage(const Pickle& pickle, const Pickle::Node& root);
  void read_entries(const Pickle& pickle, const Pickle::Node& root);
  const InputFile& file(const Pickle& pickle, std::string_view name);

  std::filesystem::path path_;
  std::map<std::string, std::unique_ptr<InputFile>, std::less<>> files_ = {};
  std::map<std::string, std::map<std::vector<std::int64_t>, FilePart>, std::less<>> parts_ = {};  ///< by offsets
  std::size_t most_chunks_ = 0;  ///< that may still be described
  std::map<std::string, ChunkedTensor> tensors_ = {};
  std::map<std::string, FilePart> values_ = {};
  int ranks_ = 1;
};

}  // namespace automodel::checkpoint
