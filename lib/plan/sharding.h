// What the data-parallel strategy of a recipe shards, in the words of the memory and time estimates.
#pragma once

#include "config/distributed_config.h"
#include "mesh/mesh_sizes.h"

namespace automodel::plan {

/// The same switches as those that the runtime's engine is given.
struct Sharding {
  bool optimizer = false;
  bool gradients = false;
  bool parameters = false;
  bool reshard_after_forward = false;  ///< gathered parameters are freed between forward and backward
  bool keep_experts = false;           ///< not those of experts
  bool defer_reduction = true;         ///< gradients stay whole until the last microbatch
  bool offloaded = false;              ///< masters, reduced gradients and optimizer states live in host memory
  bool sequence_parallel = false;      ///< norms and residuals are cut along the sequence over tp ranks
  int prefetch = 0;                    ///< units gathered ahead
  int shards = 1;                      ///< ranks that share one copy of a dense parameter
  int expert_shards = 1;               ///< of an expert's parameter
  int replicas = 1;                    ///< copies of a shard over which gradients are summed too
  /// Gathers of a step in which `passes` microbatches go forward and backward.
  double gathers(double passes, bool of_experts) const {
    if (!parameters) return optimizer ? 1 : 0;
    return reshard_after_forward && !(of_experts && keep_experts) ? 2 * passes : 1;
  }
};
/// `expert_tensor`: ranks that hold parts of the same experts.
Sharding plan_sharding(const config::DistributedConfig& distributed, const mesh::MeshSizes& sizes,
                       int expert_tensor = 1);

}  // namespace automodel::plan
