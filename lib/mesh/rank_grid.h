// Ranks on a grid: conversion between ranks and coordinates, and groups of ranks that differ only along given axes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "mesh/axis.h"

namespace automodel::mesh {

using Rank = std::int32_t;

/// Equally sized groups in one array: group i is ranks[i * group_size, (i + 1) * group_size).
class GroupList {
 public:
  GroupList() = default;
  /// `group_size` must be at least 1 and divide the number of `ranks`.
  GroupList(std::vector<Rank> ranks, std::size_t group_size);
  std::size_t size() const { return ranks_.size() / group_size_; }
  std::size_t group_size() const { return group_size_; }
  std::span<const Rank> operator[](std::size_t group) const {
    return std::span(ranks_).subspan(group * group_size_, group_size_);
  }
  const std::vector<Rank>& ranks() const { return ranks_; }
  bool operator==(const GroupList&) const = default;

 private:
  std::vector<Rank> ranks_ = {};
  std::size_t group_size_ = 1;
};

struct GridDim {
  Axis axis = Axis::kPp;
  int size = 1;
  bool operator==(const GridDim&) const = default;
};

/// One coordinate per Axis, 0 along axes that the grid does not have.
using Coordinates = std::array<int, kAxisCount>;

/// A row-major grid (last dimension fastest). Axes that the grid does not have count as size 1.
class RankGrid {
 public:
  /// Each axis may appear at most once; sizes are at least 1 and their product at most 2^31 - 1. `first_rank` is the
  /// rank at the origin.
  explicit RankGrid(std::vector<GridDim> dims, Rank first_rank = 0);

  const std::vector<GridDim>& dims() const { return dims_; }
  int world_size() const { return world_size_; }
  Rank first_rank() const { return first_rank_; }
  bool contains(Rank rank) const { return rank >= first_rank_ && rank - first_rank_ < world_size_; }
  /// Number of ranks in one group along `axes`.
  int size(AxisSet axes) const;

  Coordinates coordinates(Rank rank) const;
  Rank rank_at(const Coordinates& coordinates) const;
  /// Position of `rank` within its group along `axes`; for a single axis, its coordinate.
  int position(Rank rank, AxisSet axes) const;

  /// All groups along `axes`, ordered by first rank, with ascending ranks in each. Linear in the number of ranks.
  GroupList groups(AxisSet axes) const;
  /// The index within groups(axes) of the group containing `rank`, without building the list.
  int group_index(Rank rank, AxisSet axes) const;
  /// The group along `axes` containing `rank`, without building the others.
  std::vector<Rank> group_of(Rank rank, AxisSet axes) const;

 private:
  /// Rank offsets of a group's members along `axes`, ascending from 0.
  std::vector<Rank> offsets(AxisSet axes) const;

  std::vector<GridDim> dims_;
  Coordinates sizes_;
  Coordinates strides_;
  int world_size_ = 1;
  Rank first_rank_ = 0;
};

}  // namespace automodel::mesh
