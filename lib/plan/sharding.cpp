#include "plan/sharding.h"

#include <algorithm>

namespace automodel::plan {

Sharding plan_sharding(const config::DistributedConfig& distributed, const mesh::MeshSizes& sizes, int expert_tensor) {
  Sharding out;
  const bool pipelined = sizes.pp > 1;
  out.shards = sizes.dp_shard * sizes.cp;
  out.replicas = sizes.dp_replicate;
  out.expert_shards = std::max(1, sizes.per_stage() / (sizes.ep * expert_tensor));
  const auto& strategy = distributed.strategy();
  if (const auto* fsdp = std::get_if<config::FSDP2Config>(&strategy)) {
    out.optimizer = out.gradients = out.parameters = true;
    out.reshard_after_forward = fsdp->reshard_after_forward().value_or(!pipelined);
    out.defer_reduction = fsdp->defer_fsdp_grad_sync();
    out.offloaded = fsdp->offloads();
    out.sequence_parallel = fsdp->sequence_parallel() && sizes.tp > 1;
    if (fsdp->enable_fsdp2_prefetch())
      out.prefetch = std::max(fsdp->fsdp2_forward_prefetch_depth(), fsdp->fsdp2_backward_prefetch_depth());
  } else if (const auto* megatron = std::get_if<config::MegatronFSDPConfig>(&strategy)) {
    const int level = megatron->zero_dp_strategy();
    out.optimizer = level >= 1;
    out.gradients = level >= 2;
    out.parameters = level >= 3;
    out.defer_reduction = level < 2;
    out.reshard_after_forward = level == 3 && !pipelined;
    out.prefetch = megatron->overlap_param_gather() || level == 3 ? 2 : 0;
  } else {
    out.shards = sizes.dp() * sizes.cp;  // a sum over all of them; nothing is sharded
    out.replicas = 1;
  }
  if (distributed.moe()) out.keep_experts = !distributed.moe()->reshard_after_forward();
  return out;
}

}  // namespace automodel::plan
