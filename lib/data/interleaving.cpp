#include "data/interleaving.h"

#include <algorithm>
#include <numeric>

#include "base/error.h"

namespace automodel::data {
namespace {

constexpr std::int64_t kBlock = 1024;

}  // namespace

Interleaving::Interleaving(const std::vector<double>& weights) : shares_(weights), starts_(weights.size(), 0) {
  AUTOMODEL_CHECK(!weights.empty(), "a mixture has parts");
  const double most = std::ranges::max(shares_);
  for (auto& share : shares_) share /= most;  // so that the sum is finite
  const double sum = std::accumulate(shares_.begin(), shares_.end(), 0.0);
  for (auto& share : shares_) share /= sum;
}

std::size_t Interleaving::next(std::int64_t position, const Counts& counts) const {
  std::size_t best = shares_.size();
  double earliest = 0;
  for (std::size_t p = 0; p < shares_.size(); ++p) {
    const auto given = static_cast<double>(counts[p]);
    if (given >= shares_[p] * static_cast<double>(position + 1)) continue;  // not due yet
    const double deadline = (given + 1) / shares_[p];
    if (best < shares_.size() && deadline >= earliest) continue;
    best = p;
    earliest = deadline;
  }
  if (best < shares_.size()) return best;
  // Only rounding can leave no part due: all have given just what they should.
  return static_cast<std::size_t>(std::ranges::max_element(shares_) - shares_.begin());
}

void Interleaving::fill(std::int64_t block) const {
  const auto parts = shares_.size();
  auto known = static_cast<std::int64_t>(starts_.size() / parts) - 1;
  for (std::int64_t at = std::min(known, block); at <= block; ++at) {
    const auto begin = starts_.begin() + at * static_cast<std::int64_t>(parts);
    Counts counts(begin, begin + static_cast<std::int64_t>(parts));
    draws_.clear();
    for (std::int64_t i = 0; i < kBlock; ++i) {
      const auto part = next(at * kBlock + i, counts);
      draws_.push_back({part, counts[part]++});
    }
    if (at == known) {
      starts_.insert(starts_.end(), counts.begin(), counts.end());
      ++known;
    }
  }
  block_ = block;
}

Interleaving::Draw Interleaving::at(std::int64_t position) const {
  const std::lock_guard lock(mutex_);
  if (position / kBlock != block_) fill(position / kBlock);
  return draws_[static_cast<std::size_t>(position % kBlock)];
}

}  // namespace automodel::data
