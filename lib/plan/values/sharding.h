// What data-parallel ranks shard, and when they communicate.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

namespace automodel::plan {

/// Printed by the plan, used by the estimates, and the configuration of the runtime's data-parallel engine. Three
/// switches select the strategy; each includes those before it.
///   none          DDP, zero_dp_strategy 0
///   optimizer     ZeRO-1, zero_dp_strategy 1
///   + gradients   ZeRO-2, zero_dp_strategy 2
///   + parameters  ZeRO-3, zero_dp_strategy 3, FSDP2
struct Sharding {
  bool optimizer = false;
  bool gradients = false;
  bool parameters = false;
  bool reshard_after_forward = false;  ///< gathered parameters are freed between forward and backward
  bool keep_experts = false;           ///< except experts' parameters
  bool defer_reduction = true;         ///< gradients stay whole until the last microbatch
  bool offloaded = false;              ///< master weights, reduced gradients and optimizer state are in host memory
  bool sequence_parallel = false;      ///< norms and residuals are sharded along the sequence over tp ranks
  bool double_buffer = false;          ///< gathered layers alternate between two persistent buffers
  bool whole_stage = false;            ///< all layers of a stage form one unit; else each layer is one
  bool overlap_reduction = true;       ///< reductions of units overlap with the backward pass
  bool overlap_gather = false;         ///< units are gathered ahead of use, also after an optimizer step
  int forward_prefetch = 0;            ///< units gathered ahead
  int backward_prefetch = 0;
  /// Bucket size for all-reduces of whole gradients; empty: one all-reduce per unit.
  std::optional<std::int64_t> bucket_bytes = {};
  int shards = 1;         ///< ranks that share one copy of a dense parameter
  int expert_shards = 1;  ///< of an expert's parameter
  int replicas = 1;       ///< replicas of each shard, over which gradients are all-reduced
  /// Maximum number of units gathered ahead.
  int prefetch() const { return overlap_gather ? std::max(forward_prefetch, backward_prefetch) : 0; }
  /// Number of all-gathers per step with `passes` forward and backward passes.
  double gathers(double passes, bool of_experts) const {
    if (!parameters) return optimizer ? 1 : 0;
    return reshard_after_forward && !(of_experts && keep_experts) ? 2 * passes : 1;
  }
};

}  // namespace automodel::plan
