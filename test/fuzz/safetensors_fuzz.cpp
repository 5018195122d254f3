// Arbitrary bytes as a safetensors file: it is refused with problems, or its header describes the file exactly.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "checkpoint/format/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace automodel;
  const std::string_view file(reinterpret_cast<const char*>(data), size);
  Diagnostics problems;
  const auto length = checkpoint::header_length(file.substr(0, 8), size, "fuzz", problems);
  if (!length) {
    if (problems.empty()) std::abort();
    return 0;
  }
  const auto header = checkpoint::parse_header(file.substr(8, *length), size, "fuzz", problems);
  if (header.has_value() != problems.empty() || problems.size() > 20) std::abort();
  if (!header) return 0;
  // The tensors tile the data, and each has the bytes that its type and shape need.
  std::uint64_t at = 0;
  for (const auto& tensor : header->tensors) {
    if (tensor.begin != at || checkpoint::tensor_bytes(tensor.type, tensor.shape) != tensor.bytes()) std::abort();
    at = tensor.end;
  }
  if (header->data_begin + at != size) std::abort();
  // What it describes can be written, and is the same when read back.
  const auto layout = checkpoint::lay_out(header->tensors);
  const auto again =
      checkpoint::parse_header(std::string_view(layout.head).substr(8), layout.file_size, "again", problems);
  if (!again || again->tensors.size() != header->tensors.size()) std::abort();
  return 0;
}
