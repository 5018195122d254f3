// Every data-parallel strategy computes the gradients of one rank, alone and under a pipeline.
#include <fmt/format.h>

#include "parity/parity.h"
#include "rank_suite.h"

namespace automodel {
namespace {

const std::vector<std::string> kStrategies = {
    "strategy: ddp",
    "strategy: ddp, bucket_cap_mb: 0.002",
    "strategy: megatron_fsdp, zero_dp_strategy: 0",
    "strategy: megatron_fsdp, zero_dp_strategy: 1",
    "strategy: megatron_fsdp, zero_dp_strategy: 1, overlap_grad_reduce: false, overlap_param_gather: false",
    "strategy: megatron_fsdp, zero_dp_strategy: 2",
    "strategy: megatron_fsdp, zero_dp_strategy: 3",
    "strategy: megatron_fsdp, zero_dp_strategy: 3, disable_bucketing: true",
    "strategy: megatron_fsdp, zero_dp_strategy: 3, megatron_fsdp_unit_modules: [GPT2Block]",
    "strategy: megatron_fsdp, zero_dp_strategy: 3, fsdp_double_buffer: true",
    "strategy: fsdp2",
    "strategy: fsdp2, enable_fsdp2_prefetch: true, fsdp2_forward_prefetch_depth: 2, fsdp2_backward_prefetch_depth: 3",
    "strategy: fsdp2, reshard_after_forward: true",
    "strategy: fsdp2, reshard_after_forward: false",
    "strategy: fsdp2, defer_fsdp_grad_sync: false",
    "strategy: fsdp2, defer_fsdp_grad_sync: false, reshard_after_forward: true, enable_fsdp2_prefetch: true",
    "strategy: fsdp2, offload_policy: {}",
};

/// All ranks are data-parallel, with two runs of the schedule per step, so that gradients accumulate.
void check_flat(comm::World& w, const std::string& strategy, const test::TinyRun& base = {}) {
  auto run = base;
  run.global_batch = 24 / w.size() * w.size() * 2;
  run.local_batch = run.global_batch / w.size() / 2;
  run.distributed = strategy;
  test::check_parity(w, run, strategy);
}

void check_pipelined(comm::World& w, const std::string& strategy, const std::string& schedule, int per_rank, bool tied,
                     const std::string& more = {}) {
  const int dp = w.size() / 2;
  test::check_parity(
      w,
      {.layers = 5,
       .tied = tied,
       .global_batch = 16 * dp,
       .local_batch = 8,
       .distributed = fmt::format("{}, pp_size: 2, pipeline: {{pp_schedule: {}, pp_microbatch_size: 2{}}}", strategy,
                                  schedule, more),
       .model_parallel = fmt::format("virtual_pipeline_model_parallel_size: {}", per_rank)},
      fmt::format("{} under {}{}", strategy, schedule, tied ? ", tied" : ""));
}

const std::vector<test::RankCase> kCases = {
    {"every strategy",
     [](comm::World& w) {
       for (const auto& strategy : kStrategies) check_flat(w, strategy);
     }},
    {"tied embeddings",
     [](comm::World& w) {
       for (const auto& strategy : kStrategies) check_flat(w, strategy, {.tied = true});
     }},
    {"float32 over ten steps",
     [](comm::World& w) {
       for (const auto& strategy : kStrategies) check_flat(w, strategy, {.dtype = "float32", .steps = 10});
     }},
    {"recurrent layers",
     [](comm::World& w) {
       const int dp = w.size() / 2;
       for (const auto& model : test::kRecurrentModels) {
         const bool experts = model.find("num_experts_per_tok") != std::string::npos;
         check_flat(w, "strategy: fsdp2, reshard_after_forward: true, activation_checkpointing: full",
                    {.config = model});
         check_flat(w, fmt::format("strategy: megatron_fsdp, zero_dp_strategy: 3, ep_size: {}", experts ? 2 : 1),
                    {.config = model});
         test::check_parity(w,
                            {.global_batch = 8 * dp,
                             .local_batch = 8,
                             .config = model,
                             .distributed = "strategy: fsdp2, pp_size: 2, pipeline: {pp_schedule: 1F1B, "
                                            "pp_microbatch_size: 2}",
                             .model_parallel = "virtual_pipeline_model_parallel_size: 1"},
                            "pipelined " + model);
       }
     },
     2, 2},
    {"replicated shards",
     [](comm::World& w) {
       if (w.size() % 2 != 0) return;
       for (const int replicate : {2, w.size()})
         for (const char* options : {"", ", reshard_after_forward: false", ", defer_fsdp_grad_sync: false"})
           check_flat(
               w, fmt::format("strategy: fsdp2, dp_size: {}, dp_replicate_size: {}{}", w.size(), replicate, options));
     },
     2},
    {"divided by the schedule",  // equal to the usual scaling if all microbatches have the same number of labels
     [](comm::World& w) {
       if (w.size() % 2 != 0) return;
       for (const auto& strategy : kStrategies) {
         check_pipelined(w, strategy, "1F1B", 1, true, ", scale_grads_in_schedule: true");
         check_pipelined(w, strategy, "InterleavedZeroBubble", 2, false, ", scale_grads_in_schedule: true");
       }
     },
     2},
    {"under pipelines",
     [](comm::World& w) {
       if (w.size() % 2 != 0) return;
       for (const auto& strategy : kStrategies) {
         check_pipelined(w, strategy, "1F1B", 1, false);
         check_pipelined(w, strategy, "InterleavedZeroBubble", 2, true);
         check_pipelined(w, strategy, "ZBVZeroBubble", 2, true);
       }
     },
     2},
};

}  // namespace
}  // namespace automodel

int main(int argc, char** argv) {
  return automodel::test::run_rank_suite(argc, argv, automodel::kCases);
}
