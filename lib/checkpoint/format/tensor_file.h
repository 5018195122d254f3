// A safetensors file open for reading: the header is validated up front, data is read on demand.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string_view>
#include <unordered_map>

#include "checkpoint/format/file.h"
#include "checkpoint/format/safetensors.h"

namespace automodel::checkpoint {

class TensorFile {
 public:
  /// Empty after adding problems: cannot-read, safetensors-... (safetensors.h).
  static std::optional<TensorFile> open(const std::filesystem::path& path, Diagnostics& problems);

  const SafetensorsHeader& header() const { return header_; }
  const std::filesystem::path& path() const { return file_.path(); }
  /// Null if there is no such tensor.
  const TensorInfo* find(std::string_view name) const;
  /// Reads bytes [first, first + size) of a tensor of this file. Throws Error (kCheckpoint, `cannot-read`).
  /// Thread-safe.
  void read(const TensorInfo& tensor, std::uint64_t first, char* out, std::uint64_t size) const;

 private:
  TensorFile(InputFile file, SafetensorsHeader header);
  InputFile file_;
  SafetensorsHeader header_;
  std::unordered_map<std::string_view, std::size_t> index_;  // views of names in header_, whose storage does not move
};

}  // namespace automodel::checkpoint
