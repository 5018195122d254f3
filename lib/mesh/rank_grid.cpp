#include "mesh/rank_grid.h"

#include <limits>

#include "base/error.h"

namespace automodel::mesh {

GroupList::GroupList(std::vector<Rank> ranks, std::size_t group_size)
    : ranks_(std::move(ranks)), group_size_(group_size) {
  AUTOMODEL_CHECK(group_size_ > 0 && ranks_.size() % group_size_ == 0, "groups must have one size");
}

RankGrid::RankGrid(std::vector<GridDim> dims, Rank first_rank) : dims_(std::move(dims)), first_rank_(first_rank) {
  sizes_.fill(1);
  strides_.fill(0);
  std::int64_t stride = 1;
  AxisSet seen;
  for (auto dim = dims_.rbegin(); dim != dims_.rend(); ++dim) {
    AUTOMODEL_CHECK(dim->size >= 1 && !seen.contains(dim->axis), "a grid axis needs a size and appears once");
    seen = seen | dim->axis;
    sizes_[index_of(dim->axis)] = dim->size;
    strides_[index_of(dim->axis)] = static_cast<int>(stride);
    stride *= dim->size;
    AUTOMODEL_CHECK(stride <= std::numeric_limits<Rank>::max(), "a grid holds at most 2^31 - 1 ranks");
  }
  world_size_ = static_cast<int>(stride);
}

int RankGrid::size(AxisSet axes) const {
  int out = 1;
  for (const auto& dim : dims_)
    if (axes.contains(dim.axis)) out *= dim.size;
  return out;
}

Coordinates RankGrid::coordinates(Rank rank) const {
  AUTOMODEL_CHECK(contains(rank), "rank outside the grid");
  Coordinates out{};
  for (const auto& dim : dims_) {
    const auto axis = index_of(dim.axis);
    out[axis] = (rank - first_rank_) / strides_[axis] % dim.size;
  }
  return out;
}

Rank RankGrid::rank_at(const Coordinates& coordinates) const {
  Rank rank = first_rank_;
  for (std::size_t axis = 0; axis < kAxisCount; ++axis) {
    AUTOMODEL_CHECK(coordinates[axis] >= 0 && coordinates[axis] < sizes_[axis], "coordinate outside the grid");
    rank += coordinates[axis] * strides_[axis];
  }
  return rank;
}

int RankGrid::position(Rank rank, AxisSet axes) const {
  const auto at = coordinates(rank);
  int out = 0;
  for (const auto& dim : dims_)
    if (axes.contains(dim.axis)) out = out * dim.size + at[index_of(dim.axis)];
  return out;
}

std::vector<Rank> RankGrid::offsets(AxisSet axes) const {
  std::vector<Rank> out = {0};
  out.reserve(static_cast<std::size_t>(size(axes)));
  // Start with the fastest dimension: each slower one appends shifted copies of the offsets so far, which keeps the
  // result ascending.
  for (auto dim = dims_.rbegin(); dim != dims_.rend(); ++dim) {
    if (!axes.contains(dim->axis)) continue;
    const std::size_t before = out.size();
    for (int i = 1; i < dim->size; ++i)
      for (std::size_t k = 0; k < before; ++k) out.push_back(out[k] + i * strides_[index_of(dim->axis)]);
  }
  return out;
}

GroupList RankGrid::groups(AxisSet axes) const {
  AxisSet others;
  for (const auto& dim : dims_)
    if (!axes.contains(dim.axis)) others = others | dim.axis;
  const auto members = offsets(axes);
  const auto starts = offsets(others);
  std::vector<Rank> ranks;
  ranks.reserve(static_cast<std::size_t>(world_size_));
  for (const Rank start : starts)
    for (const Rank member : members) ranks.push_back(first_rank_ + start + member);
  return {std::move(ranks), members.size()};
}

int RankGrid::group_index(Rank rank, AxisSet axes) const {
  AxisSet others;
  for (const auto& dim : dims_)
    if (!axes.contains(dim.axis)) others = others | dim.axis;
  return position(rank, others);
}

std::vector<Rank> RankGrid::group_of(Rank rank, AxisSet axes) const {
  auto at = coordinates(rank);
  for (std::size_t axis = 0; axis < kAxisCount; ++axis)
    if (axes.contains(static_cast<Axis>(axis))) at[axis] = 0;
  const Rank start = rank_at(at);
  auto out = offsets(axes);
  for (Rank& member : out) member += start;
  return out;
}

}  // namespace automodel::mesh
