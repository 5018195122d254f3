// The ranks of a run as two grids: one for dense layers, one for experts.
#pragma once

#include <string>
#include <vector>

#include "mesh/axis.h"
#include "mesh/mesh_sizes.h"
#include "mesh/rank_grid.h"
#include "mesh/strategy.h"

namespace automodel::mesh {

/// A mesh dimension under the strategy's name for it. Megatron-FSDP's "dp" covers two axes here.
struct MeshDim {
  std::string name = {};
  AxisSet axes = {};
  int size = 1;
};

/// The axes along which a parameter is sharded, and those along which its shards are replicated.
struct DataParallelAxes {
  AxisSet replicate = {};  ///< empty if there is only one replica
  AxisSet shard = {};
};

/// Ranks in NeMo AutoModel's order: (pp, dp_replicate, dp_shard, cp, tp), tp fastest. For experts, the ranks of each
/// pipeline stage are arranged as (ep_shard, ep), ep fastest, so an expert-parallel group is a run of consecutive ranks
/// that may span tp, cp and dp.
class DeviceMesh {
 public:
  /// `sizes` as resolve_sizes returned them.
  explicit DeviceMesh(const MeshSizes& sizes, Strategy strategy = Strategy::kFsdp2);

  const MeshSizes& sizes() const { return sizes_; }
  Strategy strategy() const { return strategy_; }
  int world_size() const { return dense_.world_size(); }
  /// (pp, dp_replicate, dp_shard, cp, tp).
  const RankGrid& dense() const { return dense_; }
  /// (pp, ep_shard, ep).
  const RankGrid& experts() const { return experts_; }

  /// Dimensions of the strategy's own mesh, slowest first: all five for fsdp2, (dp, cp, tp) for megatron_fsdp and (dp)
  /// for ddp. Axes that NeMo AutoModel does not support for the last two (pp, dp_replicate, cp, tp) are included only
  /// if larger than 1.
  std::vector<MeshDim> dims() const;

  /// Groups along any set of axes of one grid: {Axis::kTp}, kDpCp, kDpCp | Axis::kPp, {Axis::kPp, Axis::kEp}, ... A set
  /// containing kEp or kEpShard is looked up in the expert grid and must not contain dp, cp or tp axes.
  GroupList groups(AxisSet axes) const { return grid_of(axes).groups(axes); }
  std::vector<Rank> group_of(Rank rank, AxisSet axes) const { return grid_of(axes).group_of(rank, axes); }
  int group_index(Rank rank, AxisSet axes) const { return grid_of(axes).group_index(rank, axes); }
  int position(Rank rank, AxisSet axes) const { return grid_of(axes).position(rank, axes); }
  int size(AxisSet axes) const { return grid_of(axes).size(axes); }

  /// Parameters are sharded along dp_shard and cp and replicated along dp_replicate, like NeMo AutoModel's FSDP mesh.
  DataParallelAxes data_parallel_axes() const;

 private:
  const RankGrid& grid_of(AxisSet axes) const;

  MeshSizes sizes_;
  Strategy strategy_;
  RankGrid dense_;
  RankGrid experts_;
};

}  // namespace automodel::mesh
