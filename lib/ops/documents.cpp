#include "ops/documents.h"

#include <algorithm>
#include <unordered_set>

#include <ATen/ops/from_blob.h>

#include "ops/upload.h"

namespace automodel::ops {
namespace {

at::Tensor table(std::vector<std::int32_t>& values, at::Device device) {
  const auto count = static_cast<std::int64_t>(values.size());
  return uploaded(at::from_blob(values.data(), {count}, at::TensorOptions().dtype(at::kInt)), at::kInt, device);
}

}  // namespace

std::shared_ptr<const Documents> Documents::of(const std::int32_t* numbers, std::int64_t rows, std::int64_t tokens) {
  auto out = std::make_shared<Documents>();
  out->tokens_ = tokens;
  for (std::int64_t row = 0; row < rows; ++row, numbers += tokens) {
    auto& here = out->rows_.emplace_back();
    std::unordered_set<std::int32_t> seen;
    for (std::int64_t begin = 0, end = 0; begin < tokens; begin = end) {
      while (end < tokens && numbers[end] == numbers[begin]) ++end;
      if (!seen.insert(numbers[begin]).second) return nullptr;
      here.push_back({begin, end});
    }
  }
  return out;
}

std::shared_ptr<const Documents> Documents::of(const at::Tensor& numbers) {
  const auto host = numbers.to(at::kInt).contiguous();
  return of(host.const_data_ptr<std::int32_t>(), host.size(0), host.size(1));
}

const DocumentCut& Documents::cut(std::int64_t query, std::int64_t key, std::int64_t length, at::Device device) const {
  const auto at = std::tuple(query, key, length);
  const auto known = cuts_.find(at);
  return known != cuts_.end() ? known->second : cuts_.emplace(at, made(query, key, length, device)).first->second;
}

DocumentCut Documents::made(std::int64_t query, std::int64_t key, std::int64_t length, at::Device device) const {
  DocumentCut out;
  std::vector<std::int32_t> starts;
  // If all rows are cut alike, one piece covers all of them.
  const bool alike = std::all_of(rows_.begin(), rows_.end(), [&](const auto& row) { return row == rows_.front(); });
  const auto rows = static_cast<std::int64_t>(rows_.size());
  const auto inside = [length](std::int64_t place) { return std::clamp<std::int64_t>(place, 0, length); };
  for (std::int64_t row = 0; row < rows; ++row)
    for (const auto& each : rows_[static_cast<std::size_t>(row)]) {
      Piece piece{
          .row = row, .rows = alike ? rows : 1, .query = inside(each.begin - query), .key = inside(each.begin - key)};
      piece.queries = inside(each.end - query) - piece.query;
      piece.keys = inside(each.end - key) - piece.key;
      if (piece.queries == 0 || piece.keys == 0) continue;
      if (row == 0 || !alike) out.pieces.push_back(piece);
      starts.push_back(static_cast<std::int32_t>(row * length + piece.query));
      out.longest = std::max(out.longest, piece.queries);
    }
  if (query != key) return out;
  starts.push_back(static_cast<std::int32_t>(rows * length));
  out.starts = table(starts, device);
  return out;
}

}  // namespace automodel::ops
