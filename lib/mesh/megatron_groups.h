// The process groups that Megatron Core makes, from the same sizes and the same order string.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/diagnostic.h"
#include "mesh/rank_grid.h"
#include "mesh/rank_order.h"

namespace automodel::mesh {

/// The size arguments of Megatron Core's initialize_model_parallel, without its "_parallel_size" endings.
struct MegatronSizes {
  int world_size = 1;
  int tensor = 1;
  int pipeline = 1;
  int context = 1;
  int expert = 1;
  std::optional<int> expert_tensor = {};     ///< absent: `tensor`
  std::optional<int> virtual_pipeline = {};  ///< chunks of layers per pipeline rank
  int weight_remat = 1;                      ///< gtp_remat_size
  int expert_weight_remat = 1;
  int optimizer_instances = 1;           ///< num_distributed_optimizer_instances
  bool hybrid_context = false;           ///< also make the groups of 2, 4, ... ranks of dp-cp
  std::vector<int> context_levels = {};  ///< hierarchical_context_parallel_sizes, inner level first
  std::string order = std::string(kDefaultRankOrder);
};

/// Groups of one kind under Megatron's own name, for example "TENSOR_MODEL_PARALLEL_GROUP". Lists stand in the order in
/// which Megatron makes the groups, which for a few kinds is not the order of their first ranks.
struct NamedGroups {
  std::string name = {};
  GroupList groups = {};
};

/// The dense grid (ep = 1) and the expert grid (cp = 1, tp = expert_tensor) over the same ranks.
struct MegatronGrids {
  RankGrid dense;
  RankGrid experts;
};

/// Problems: indivisible, bad-value, missing-axis (see rank_order), and "order" where pp is not the last axis although
/// dense and expert layers have different data-parallel sizes, or pp groups that differ between the two grids.
std::optional<MegatronGrids> megatron_grids(const MegatronSizes& sizes, Diagnostics& problems);

/// Every group kind in order of creation. Problems as megatron_grids; further: context_levels that do not multiply to
/// `context`, hybrid_context over an odd number of ranks, optimizer_instances that do not divide dp-cp or come together
/// with weight_remat.
std::optional<std::vector<NamedGroups>> megatron_groups(const MegatronSizes& sizes, Diagnostics& problems);

/// The groups of level `level` of a group cut into `levels` (inner level first): the ranks are seen as a row-major
/// block (outer levels, this level, inner levels) and a group varies along this level only. `levels` multiply to
/// ranks.size().
GroupList hierarchical_groups(std::span<const Rank> ranks, std::span<const int> levels, std::size_t level);

}  // namespace automodel::mesh
