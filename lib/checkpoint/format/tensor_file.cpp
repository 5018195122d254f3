#include "checkpoint/format/tensor_file.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/error.h"

namespace automodel::checkpoint {

TensorFile::TensorFile(InputFile file, SafetensorsHeader header) : file_(std::move(file)), header_(std::move(header)) {
  index_.reserve(header_.tensors.size());
  for (std::size_t i = 0; i < header_.tensors.size(); ++i) index_.emplace(header_.tensors[i].name, i);
}

std::optional<TensorFile> TensorFile::open(const std::filesystem::path& path, Diagnostics& problems) {
  auto file = InputFile::open(path, problems);
  if (!file) return std::nullopt;
  std::string head(std::min<std::uint64_t>(8, file->size()), '\0');
  file->read(0, head.data(), head.size());
  const auto length = header_length(head, file->size(), path.native(), problems);
  if (!length) return std::nullopt;
  std::string json(*length, '\0');
  file->read(8, json.data(), json.size());
  auto header = parse_header(json, file->size(), path.native(), problems);
  if (!header) return std::nullopt;
  return TensorFile(std::move(*file), std::move(*header));
}

const TensorInfo* TensorFile::find(std::string_view name) const {
  const auto found = index_.find(name);
  return found == index_.end() ? nullptr : &header_.tensors[found->second];
}

void TensorFile::read(const TensorInfo& tensor, std::uint64_t first, char* out, std::uint64_t size) const {
  AUTOMODEL_CHECK(first <= tensor.bytes() && size <= tensor.bytes() - first, "bytes beyond the tensor " + tensor.name);
  file_.read(header_.data_begin + tensor.begin + first, out, size);
}

}  // namespace automodel::checkpoint
