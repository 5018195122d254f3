// Arbitrary bytes as an index: its spans are inside the token file, or it is refused with a reason. The first eight
// bytes are the size of the token file.
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "data/megatron_index.h"
#include "data/nanogpt_file.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace automodel::data;  // NOLINT(google-build-using-namespace): a program of one file
  if (size < 8) return 0;
  std::uint64_t bin_size = 0;
  std::memcpy(&bin_size, data, 8);
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 8, size - 8);
  std::string problem;
  const auto index = read_megatron_index(bytes, bin_size, problem);
  if (index.has_value() == !problem.empty()) std::abort();
  if (index) {
    for (const auto& span : index->sequences) {
      const auto length = static_cast<std::uint64_t>(span.tokens) * static_cast<std::uint64_t>(bytes_of(span.type));
      if (span.tokens < 1 || span.offset > bin_size || length > bin_size - span.offset) std::abort();
    }
    if (index->documents.front() != 0 || index->documents.back() != index->sequences.size()) std::abort();
    for (std::size_t i = 0; i + 1 < index->documents.size(); ++i)
      if (index->documents[i] > index->documents[i + 1]) std::abort();
  }
  problem.clear();
  const auto span = read_nanogpt_header(bytes, TokenType::kUint16, problem);
  if (span.has_value() == !problem.empty()) std::abort();
  if (span &&
      span->offset + static_cast<std::uint64_t>(span->tokens) * static_cast<std::uint64_t>(bytes_of(span->type)) >
          bytes.size())
    std::abort();
  return 0;
}
