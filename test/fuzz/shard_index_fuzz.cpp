// Arbitrary text as an index of shards: it is refused with problems, or every file it names is inside the folder.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <string_view>

#include "checkpoint/format/shard_index.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace automodel;
  Diagnostics problems;
  const auto index = checkpoint::parse_shard_index({reinterpret_cast<const char*>(data), size}, "fuzz", problems);
  if (index.has_value() != problems.empty() || problems.size() > 20) std::abort();
  if (!index) return 0;
  for (const auto& [tensor, file] : index->files) {
    const std::filesystem::path path(file);
    if (path.is_absolute()) std::abort();
    for (const auto& part : path)
      if (part == "..") std::abort();
  }
  return 0;
}
