// Settings of the data-parallel engine. DDP, ZeRO 1 to 3, FSDP2 and HSDP are combinations of the plan's switches.
#pragma once

#include <memory>

#include <ATen/core/Tensor.h>

#include "comm/communicator.h"
#include "plan/values/sharding.h"

namespace automodel::parallel {

/// The groups in which one kind of weights (dense or expert) is reduced.
struct ReduceGroups {
  std::shared_ptr<comm::Communicator> shard;      ///< ranks that together hold one copy
  std::shared_ptr<comm::Communicator> replicate;  ///< ranks that hold the same shard of different copies; null if
                                                  ///< there is one copy
};

/// How the storage of a stage's weights works: the plan's sharding, element types and devices.
struct StorageOptions {
  plan::Sharding sharding = {};
  at::ScalarType compute = at::kFloat;   ///< of the parameters used in computation
  at::ScalarType master = at::kFloat;    ///< of the values that the optimizer updates
  at::ScalarType gradient = at::kFloat;  ///< in which gradients are accumulated over microbatches
  at::ScalarType reduce = at::kFloat;    ///< in which gradients are communicated
  at::Device device = at::kCPU;
  at::Device offload = at::kCPU;  ///< where, if `sharding.offloaded`, master values and sharded gradients are kept
                                  ///< between uses
};

}  // namespace automodel::parallel
