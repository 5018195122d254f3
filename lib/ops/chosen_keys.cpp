#include "ops/chosen_keys.h"

#include <ATen/ops/zeros.h>

namespace automodel::ops {

ChosenKeys::ChosenKeys(at::Tensor listed, std::int64_t count, at::Tensor block_of)
    : listed_(std::move(listed)), block_of_(std::move(block_of)), count_(count) {}

ChosenKeys ChosenKeys::part(const Piece& piece) const {
  auto out = *this;
  if (!defined()) return out;
  out.listed_ = listed_.narrow(0, piece.row, piece.rows).narrow(1, piece.query, piece.queries);
  if (block_of_.defined()) out.block_of_ = block_of_.narrow(0, piece.row, piece.rows).narrow(1, piece.key, piece.keys);
  out.first_ += piece.key;
  return out;
}

at::Tensor ChosenKeys::mask(std::int64_t query, std::int64_t queries, std::int64_t key, std::int64_t keys) const {
  const auto batch = listed_.size(0);
  auto seen = at::zeros({batch, queries, count_}, listed_.options().dtype(at::kBool));
  seen.scatter_(2, listed_.narrow(1, query, queries).to(at::kLong), true);
  const auto of_keys = block_of_.defined()
                           ? seen.gather(2, block_of_.narrow(1, key, keys).unsqueeze(1).expand({batch, queries, keys}))
                           : seen.narrow(2, first_ + key, keys);
  return of_keys.unsqueeze(1);
}

}  // namespace automodel::ops
