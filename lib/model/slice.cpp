#include "model/slice.h"

#include <algorithm>

#include "base/error.h"

namespace automodel::model {

std::vector<std::int64_t> Slice::shape(const std::vector<std::int64_t>& full) const {
  auto out = full;
  if (whole()) return out;
  std::int64_t size = filling;
  for (const auto& [begin, end] : ranges) size += end - begin;
  out[static_cast<std::size_t>(dim)] = size;
  return out;
}

std::vector<Run> runs(const Slice& slice, const std::vector<std::int64_t>& full, std::int64_t first,
                      std::int64_t count) {
  if (count <= 0) return {};
  if (slice.whole()) return {{first, first, count}};
  std::int64_t inner = 1, outer = 1;
  for (std::size_t d = 0; d < full.size(); ++d)
    (static_cast<int>(d) < slice.dim ? outer : inner) *= static_cast<int>(d) == slice.dim ? 1 : full[d];
  const auto size = full[static_cast<std::size_t>(slice.dim)];
  std::vector<Run> out;
  std::int64_t local = 0;
  const auto add = [&](std::int64_t from, std::int64_t to,
                       std::int64_t at) {  // intersects local [from, to), which is at `at` in the whole tensor, with
                                           // the requested range
    const auto begin = std::max(from, first), end = std::min(to, first + count);
    if (begin >= end) return;
    const auto where = at + begin - from;
    if (!out.empty() && out.back().local + out.back().length == begin && out.back().full + out.back().length == where)
      out.back().length += end - begin;
    else
      out.push_back({begin, where, end - begin});
  };
  AUTOMODEL_CHECK(slice.filling == 0 || outer == 1, "only rows are filled up");
  std::int64_t block = 0;
  for (const auto& [begin, end] : slice.ranges) block += (end - begin) * inner;
  std::int64_t start = block > 0 ? first / block : 0;  // skips whole outer blocks before `first`
  local = start * block;
  for (std::int64_t o = start; o < outer && local < first + count; ++o)
    for (const auto& [begin, end] : slice.ranges) {
      const auto length = (end - begin) * inner;
      add(local, local + length, (o * size + begin) * inner);
      local += length;
    }
  return out;
}

Slice even_slice(int dim, std::int64_t size, int parts, int part, const std::vector<std::int64_t>& sections) {
  if (parts == 1) return {};
  Slice out{.dim = dim};
  std::int64_t begin = 0;
  for (const auto section : sections.empty() ? std::vector<std::int64_t>{size} : sections) {
    AUTOMODEL_CHECK(section % parts == 0, "a dimension does not divide among ranks");
    const auto each = section / parts;
    out.ranges.emplace_back(begin + part * each, begin + (part + 1) * each);
    begin += section;
  }
  AUTOMODEL_CHECK(begin == size, "sections do not make up the dimension");
  return out;
}

Slice filled_slice(std::int64_t size, int parts, int part) {
  if (parts == 1) return {};
  const auto each = (size + parts - 1) / parts;
  const auto begin = std::min(size, part * each), end = std::min(size, begin + each);
  return {.dim = 0, .ranges = {{begin, end}}, .filling = each - (end - begin)};
}

}  // namespace automodel::model
