// Settings of the data-parallel engine: what it shards, and its element types. DDP, ZeRO 1 to 3, FSDP2 and HSDP are
// combinations of them.
#pragma once

#include <cstdint>
#include <memory>

#include <ATen/core/Tensor.h>

#include "comm/communicator.h"

namespace automodel::parallel {

/// The groups in which one kind of weights (dense or expert) is reduced.
struct ReduceGroups {
  std::shared_ptr<comm::Communicator> shard;      ///< ranks that together hold one copy
  std::shared_ptr<comm::Communicator> replicate;  ///< ranks that hold the same shard of different copies; null if
                                                  ///< there is one copy
};

/// Three switches select the strategy; each includes those before it.
///   none                 DDP, zero_dp_strategy 0
///   shard_optimizer      ZeRO-1, zero_dp_strategy 1
///   + shard_gradients    ZeRO-2, zero_dp_strategy 2
///   + shard_parameters   ZeRO-3, zero_dp_strategy 3, FSDP2
struct DataParallelOptions {
  bool shard_optimizer = false;
  bool shard_gradients = false;
  bool shard_parameters = false;

  at::ScalarType compute = at::kFloat;   ///< of the parameters used in computation
  at::ScalarType master = at::kFloat;    ///< of the values that the optimizer updates
  at::ScalarType gradient = at::kFloat;  ///< in which gradients are accumulated over microbatches
  at::ScalarType reduce = at::kFloat;    ///< in which gradients are communicated
  at::Device device = at::kCPU;
  at::Device offload = at::kCPU;  ///< where, if `offloaded`, master values and sharded gradients are kept between
                                  ///< uses
  bool offloaded = false;

  bool reshard_after_forward = false;  ///< free gathered parameters between forward and backward
  bool keep_experts = false;           ///< except for those of experts
  bool defer_reduction = true;         ///< reduce once per step, after the last microbatch; else after each
                                       ///< microbatch
  bool overlap_reduction = true;       ///< start reducing a unit while the backward pass continues
  bool overlap_gather = true;          ///< gather ahead of use, and after a step while the next one begins
  bool double_buffer = false;          ///< gather units that are freed after use into two persistent buffers
  bool whole_stage = false;            ///< a stage's layers are one unit, gathered and reduced as a whole
  int forward_prefetch = 1;            ///< units gathered ahead in the forward pass
  int backward_prefetch = 2;
  std::int64_t bucket_bytes = 25 << 20;  ///< all-reduces of unsharded gradients are split into pieces of about this
                                         ///< size
};

}  // namespace automodel::parallel
