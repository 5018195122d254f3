#include "plan/sharding.h"

namespace automodel::plan {
namespace {

constexpr std::int64_t kBucketBytes = std::int64_t{25} << 20;  // PyTorch's bucket_cap_mb

}  // namespace

Sharding plan_sharding(const config::DistributedConfig& distributed, const mesh::MeshSizes& sizes, int expert_tensor,
                       std::int64_t passes) {
  Sharding out;
  const bool pipelined = sizes.pp > 1;
  out.shards = sizes.dp_shard * sizes.cp;
  out.replicas = sizes.dp_replicate;
  out.expert_shards = std::max(1, sizes.per_stage() / (sizes.ep * expert_tensor));
  const auto& strategy = distributed.strategy();
  if (const auto* fsdp = std::get_if<config::FSDP2Config>(&strategy)) {
    out.optimizer = out.gradients = out.parameters = true;
    out.reshard_after_forward = fsdp->reshard_after_forward().value_or(!pipelined);
    out.defer_reduction = fsdp->defer_fsdp_grad_sync() && passes > 1;
    out.offloaded = fsdp->offloads();
    out.sequence_parallel = fsdp->sequence_parallel() && sizes.tp > 1;
    out.overlap_gather = true;
    const bool deeper = fsdp->enable_fsdp2_prefetch();
    out.forward_prefetch = deeper ? fsdp->fsdp2_forward_prefetch_depth() : 1;
    out.backward_prefetch = deeper ? fsdp->fsdp2_backward_prefetch_depth() : 1;
  } else if (const auto* megatron = std::get_if<config::MegatronFSDPConfig>(&strategy)) {
    const int level = megatron->zero_dp_strategy();
    out.optimizer = level >= 1;
    out.gradients = level >= 2;
    out.parameters = level >= 3;
    out.defer_reduction = level < 2;
    out.reshard_after_forward = level == 3 && !pipelined;
    out.overlap_reduction = megatron->overlap_grad_reduce();
    out.overlap_gather = megatron->overlap_param_gather();
    out.forward_prefetch = 1;
    out.backward_prefetch = 2;
    out.whole_stage = megatron->disable_bucketing();
    out.double_buffer = megatron->fsdp_double_buffer() && out.reshard_after_forward && !out.whole_stage;
    if (out.double_buffer) out.backward_prefetch = 1;  // one unit is in use, the next is being gathered
    if (!out.whole_stage) out.bucket_bytes = kBucketBytes;
  } else {
    out.shards = sizes.dp() * sizes.cp;  // the ranks that sum whole gradients; nothing is sharded
    out.replicas = 1;
    out.bucket_bytes = kBucketBytes;
    if (const auto& mebibytes = std::get<config::DDPConfig>(strategy).bucket_cap_mb())
      out.bucket_bytes = std::max<std::int64_t>(1, static_cast<std::int64_t>(*mebibytes * (1 << 20)));
  }
  if (distributed.moe()) out.keep_experts = !distributed.moe()->reshard_after_forward();
  return out;
}

Sharding stored_parts(const Sharding& sharding) {
  auto out = sharding;
  if (out.shards > 1 || out.expert_shards > 1 || out.offloaded) return out;
  out.optimizer = out.gradients = out.parameters = out.double_buffer = false;
  out.defer_reduction = true;
  return out;
}

}  // namespace automodel::plan
