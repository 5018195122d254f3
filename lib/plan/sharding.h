// What a recipe's data-parallel strategy shards.
#pragma once

#include <cstdint>

#include "config/distributed_config.h"
#include "mesh/mesh_sizes.h"
#include "plan/values/sharding.h"

namespace automodel::plan {

/// `expert_tensor`: ranks that hold parts of the same experts. `passes`: forward and backward passes per step; with
/// only one, there is nothing to gain from deferring the reduction.
Sharding plan_sharding(const config::DistributedConfig& distributed, const mesh::MeshSizes& sizes,
                       int expert_tensor = 1, std::int64_t passes = 2);

/// What is stored in parts. With one shard on the device that is nothing: gathering would copy all weights before every
/// use. Weights are then published by the optimizer's step, as with DDP; types stay the strategy's; what each reduction
/// of a step would round to its type is rounded once.
Sharding stored_parts(const Sharding& sharding);

}  // namespace automodel::plan
