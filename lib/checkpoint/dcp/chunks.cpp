#include "checkpoint/dcp/chunks.h"

#include <algorithm>
#include <optional>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.h"
#include "base/utf8.h"
#include "checkpoint/format/safetensors.h"

namespace automodel::checkpoint {
namespace {

constexpr std::uint64_t kMostCells = std::uint64_t{1} << 24U;  // 1,000 parts of rows and 16,000 of columns
constexpr std::int64_t kReadAtOnce = std::int64_t{4} << 20U;   // bytes
constexpr std::int64_t kRunsAtOnce = std::int64_t{1} << 16U;

[[noreturn]] void fail_chunks(const ChunkedTensor& tensor, const std::string& where, const std::string& what) {
  throw Error(
      ExitCode::kCheckpoint,
      Diagnostic{"checkpoint-damaged"}
          .says("'{}': {} of '{}'", where, what, printable(tensor.name, kMostShown))
          .hint("the parts of a tensor cover each element exactly once: the files of all ranks and .metadata must "
                "be of one save; copy the whole folder again")
          .at({where, 0, 0}));
}

/// The lines along which chunks cut one dimension.
std::vector<std::int64_t> cuts(const ChunkedTensor& tensor, std::size_t dimension) {
  std::vector<std::int64_t> out = {0, tensor.shape[dimension]};
  for (const auto& chunk : tensor.chunks) {
    out.push_back(chunk.offsets[dimension]);
    out.push_back(chunk.offsets[dimension] + chunk.sizes[dimension]);
  }
  std::sort(out.begin(), out.end());
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

std::int64_t product(const std::vector<std::int64_t>& sizes, std::size_t from = 0) {
  if (std::ranges::find(sizes, 0) != sizes.end()) return 0;  // beside a 0 the others may be of any size
  std::int64_t out = 1;
  for (std::size_t i = from; i < sizes.size(); ++i) out *= sizes[i];
  return out;
}

/// Advances `index` within `sizes`, the last dimension fastest; false after the last one.
bool advance(std::vector<std::int64_t>& index, const std::vector<std::int64_t>& sizes) {
  for (std::size_t i = index.size(); i-- > 0;) {
    if (++index[i] < sizes[i]) return true;
    index[i] = 0;
  }
  return false;
}

}  // namespace

void check_cover(const ChunkedTensor& tensor, const std::string& where) {
  const auto dimensions = tensor.shape.size();
  if (!tensor_bytes(tensor.type, tensor.shape)) fail_chunks(tensor, where, "absurd sizes");
  for (const auto& chunk : tensor.chunks) {
    if (chunk.offsets.size() != dimensions || chunk.sizes.size() != dimensions)
      fail_chunks(tensor, where, "a part with other dimensions than those");
    for (std::size_t i = 0; i < dimensions; ++i)
      if (chunk.offsets[i] > tensor.shape[i] || chunk.sizes[i] > tensor.shape[i] - chunk.offsets[i])
        fail_chunks(
            tensor, where,
            fmt::format("a part at {} leaves the [{}]", fmt::join(chunk.offsets, ", "), fmt::join(tensor.shape, ", ")));
  }
  if (product(tensor.shape) == 0) return;
  // Chunks consist of cells of the grid of all cuts; marking a cell twice ends the check, so it takes as many steps as
  // there are cells.
  std::vector<std::vector<std::int64_t>> lines(dimensions);
  std::vector<std::int64_t> grid(dimensions);
  std::uint64_t cells = 1;
  for (std::size_t i = 0; i < dimensions; ++i) {
    lines[i] = cuts(tensor, i);
    grid[i] = static_cast<std::int64_t>(lines[i].size()) - 1;
    cells *= static_cast<std::uint64_t>(grid[i]);
    if (cells > kMostCells) fail_chunks(tensor, where, "too many parts");
  }
  std::vector<bool> marked(cells);
  std::uint64_t count = 0;
  for (const auto& chunk : tensor.chunks) {
    if (product(chunk.sizes) == 0) continue;
    std::vector<std::int64_t> begin(dimensions), some(dimensions), index(dimensions);
    for (std::size_t i = 0; i < dimensions; ++i) {
      const auto at = [&](std::int64_t line) {
        return std::lower_bound(lines[i].begin(), lines[i].end(), line) - lines[i].begin();
      };
      begin[i] = at(chunk.offsets[i]);
      some[i] = at(chunk.offsets[i] + chunk.sizes[i]) - begin[i];
    }
    do {
      std::uint64_t cell = 0;
      for (std::size_t i = 0; i < dimensions; ++i)
        cell = cell * static_cast<std::uint64_t>(grid[i]) + static_cast<std::uint64_t>(begin[i] + index[i]);
      if (marked[cell])
        fail_chunks(tensor, where,
                    fmt::format("the part at [{}] overlaps another part", fmt::join(chunk.offsets, ", ")));
      marked[cell] = true;
      ++count;
    } while (advance(index, some));
  }
  if (count != cells) fail_chunks(tensor, where, "no part has some elements");
}

void for_each_run(const ChunkedTensor& tensor, std::int64_t first, std::int64_t count, const RowOrder& order,
                  const std::function<void(std::int64_t element, std::string_view bytes)>& write) {
  const auto dimensions = tensor.shape.size();
  const auto size = static_cast<std::int64_t>(bits_of(tensor.type)) / 8;
  std::string buffer;
  for (const auto& chunk : tensor.chunks) {
    const auto elements = product(chunk.sizes);
    if (elements == 0) continue;
    // Of a tensor that joins many experts, one is asked for at a time: most parts have nothing of it.
    if (!order) {
      std::int64_t begin = 0, last = 0;
      for (std::size_t d = 0; d < dimensions; ++d) {
        begin = begin * tensor.shape[d] + chunk.offsets[d];
        last = last * tensor.shape[d] + chunk.offsets[d] + chunk.sizes[d] - 1;
      }
      if (begin >= first + count || last < first) continue;
    }
    auto place = chunk.part;
    if (chunk.archived) {
      const Archive archive(chunk.part);
      const auto held = archive.tensor();
      if (!held || held->type != tensor.type || held->shape != chunk.sizes)
        fail_chunks(tensor, archive.value().where(), "another tensor than the part");
      place = held->bytes;
    }
    // Dimensions from `inner` on are contiguous in the whole tensor.
    std::size_t inner = dimensions;
    while (inner > 0 && (inner == dimensions || chunk.sizes[inner] == tensor.shape[inner])) --inner;
    if (order && dimensions > 0) inner = std::max<std::size_t>(inner, 1);
    const auto run = inner < dimensions ? product(chunk.sizes, inner) : 1;
    std::vector<std::int64_t> outer(chunk.sizes.begin(), chunk.sizes.begin() + static_cast<std::ptrdiff_t>(inner));
    std::vector<std::int64_t> index(inner);
    const auto runs = elements / run;
    const auto at_once = std::clamp<std::int64_t>(kReadAtOnce / (run * size), 1, kRunsAtOnce);
    std::vector<std::int64_t> starts;
    for (std::int64_t done = 0; done < runs; done += at_once) {
      const auto some = std::min(at_once, runs - done);
      starts.clear();
      for (std::int64_t i = 0; i < some; ++i) {
        std::int64_t element = 0;
        for (std::size_t d = 0; d < dimensions; ++d) {
          auto at = chunk.offsets[d] + (d < inner ? index[d] : 0);
          if (d == 0 && order) at = order(at);
          element = element * tensor.shape[d] + at;
        }
        starts.push_back(element);
        advance(index, outer);
      }
      // A single run may itself be longer than what is read at once.
      for (std::int64_t part = 0; part < run; part += kReadAtOnce / size) {
        const auto length = some > 1 ? run : std::min(run - part, kReadAtOnce / size);
        if (std::ranges::none_of(starts, [&](std::int64_t element) {
              return element + part < first + count && element + part + length > first;
            }))
          continue;
        buffer.resize(static_cast<std::size_t>(some * length * size));
        place.file->read(place.begin + static_cast<std::uint64_t>((done * run + part) * size), buffer.data(),
                         buffer.size());
        for (std::int64_t i = 0; i < some; ++i) {
          const auto element = starts[static_cast<std::size_t>(i)];
          const auto begin = std::max(element + part, first), end = std::min(element + part + length, first + count);
          if (begin < end)
            write(begin - first, std::string_view(buffer).substr(
                                     static_cast<std::size_t>((i * length + begin - element - part) * size),
                                     static_cast<std::size_t>((end - begin) * size)));
        }
      }
    }
  }
}

}  // namespace automodel::checkpoint
