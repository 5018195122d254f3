// Expert parallelism computes the gradients of one rank: for every router and layout of weights, sharding of experts,
// schedule and overlap.
#include <fmt/format.h>

#include "parity/parity.h"
#include "rank_suite.h"

namespace automodel {
namespace {

struct Model {
  const char* family;
  const char* keys;
};
const Model kMixtral = {"mixtral", "num_local_experts: 4, num_experts_per_tok: 2, sliding_window: null"};
const Model kQwen = {"qwen3_moe",
                     "num_experts: 8, num_experts_per_tok: 3, moe_intermediate_size: 12, norm_topk_prob: true, "
                     "head_dim: 8, mlp_only_layers: [1]"};
const Model kDeepseek = {"deepseek_v3",
                         "n_routed_experts: 8, num_experts_per_tok: 2, moe_intermediate_size: 12, n_group: 4, "
                         "topk_group: 2, n_shared_experts: 1, first_k_dense_replace: 1, q_lora_rank: 16, "
                         "kv_lora_rank: 12, qk_nope_head_dim: 8, qk_rope_head_dim: 4, v_head_dim: 6"};
const Model kGranite = {"granitemoe", "num_local_experts: 4, num_experts_per_tok: 2"};
const Model kGptOss = {"gpt_oss", "num_local_experts: 4, num_experts_per_tok: 2, head_dim: 8, sliding_window: 8"};

struct Case {
  const Model& model;
  std::string strategy = "strategy: ddp";
  int ep = 2;
  int pp = 1;
  std::string schedule = "1F1B";
  int per_rank = 1;
  std::string options = {};  ///< of model_parallel
  bool auxiliary = false;
};

void check(comm::World& world, const Case& c) {
  constexpr int kGlobal = 8;
  const int dp = world.size() / c.pp, local = kGlobal / dp;
  std::string distributed = fmt::format("{}, dp_size: {}, ep_size: {}", c.strategy, dp, c.ep);
  if (c.pp > 1)
    distributed += fmt::format(", pp_size: {}, pipeline: {{pp_schedule: {}, pp_microbatch_size: {}}}", c.pp, c.schedule,
                               local / 2);
  std::string options = fmt::format("virtual_pipeline_model_parallel_size: {}{}", c.per_rank, c.options);
  const std::string keys =
      c.model.keys + std::string(c.auxiliary ? ", output_router_logits: true, router_aux_loss_coef: 0.05" : "");
  test::check_parity(world,
                     {.layers = 4,
                      .global_batch = kGlobal,
                      .local_batch = local,
                      .single_batch = c.auxiliary ? local : 0,
                      .family = c.model.family,
                      .model = keys,
                      .distributed = distributed,
                      .model_parallel = options,
                      .steps = 3},
                     fmt::format("{}: {}, {}", c.model.family, distributed, options));
}

const std::vector<test::RankCase> kCases = {
    {"every router and layout of experts",
     [](comm::World& w) {
       for (const auto* model : {&kMixtral, &kQwen, &kDeepseek, &kGranite, &kGptOss})
         check(w, {*model, "strategy: ddp", w.size()});
     },
     1, 4},
    {"experts sharded among expert-parallel groups",
     [](comm::World& w) {
       for (const auto* model : {&kQwen, &kDeepseek, &kGptOss}) {
         check(w, {*model, "strategy: fsdp2"});
         check(w, {*model, "strategy: fsdp2, reshard_after_forward: true, moe: {}"});
         for (const char* level : {", zero_dp_strategy: 1", ", zero_dp_strategy: 2", ", zero_dp_strategy: 3"})
           check(w, {.model = *model, .strategy = std::string("strategy: megatron_fsdp") + level});
       }
     },
     2, 4},
    {"replicas of sharded weights",
     [](comm::World& w) {
       check(w, {.model = kQwen, .strategy = "strategy: fsdp2, dp_replicate_size: 2"});
       check(w, {.model = kQwen, .strategy = "strategy: fsdp2, dp_replicate_size: 2", .ep = 4});
     },
     4, 4},
    {"experts replicated by plain data parallelism", [](comm::World& w) { check(w, {.model = kQwen, .ep = 1}); }, 2, 4},
    {"pipelines of expert-parallel stages",
     [](comm::World& w) {
       check(w, {.model = kDeepseek, .pp = 2});
       check(w, {.model = kQwen, .strategy = "strategy: fsdp2", .pp = 2, .schedule = "Interleaved1F1B", .per_rank = 2});
       check(w, {.model = kGptOss, .pp = 2, .schedule = "ZBVZeroBubble", .per_rank = 2});
     },
     4, 4},
    {"experts that nobody chose",
     [](comm::World& w) {
       const std::vector<Model> many = {
           {"gpt_oss", "num_local_experts: 16, num_experts_per_tok: 1, head_dim: 8, sliding_window: 8"},
           {"mixtral", "num_local_experts: 16, num_experts_per_tok: 1, sliding_window: null"}};
       for (const auto& model : many)  // 16 tokens at a time over four experts on each of four ranks
         test::check_parity(w,
                            {.layers = 4,
                             .global_batch = 8,
                             .local_batch = 1,
                             .family = model.family,
                             .model = model.keys,
                             .distributed = "strategy: ddp, tp_size: 4, ep_size: 4",
                             .model_parallel = "sequence_parallel: true"},
                            std::string(model.family) + ", ranks without rows");
     },
     4, 4},
    {"overlap changes nothing",
     [](comm::World& w) {
       for (const auto* model : {&kDeepseek, &kGptOss}) {
         check(w, {.model = *model, .options = ", overlap_moe_expert_parallel_comm: true"});
         check(w, {.model = *model, .options = ", overlap_dispatch_backward_with_experts_wgrad: true"});
       }
     },
     2, 4},
    {"experts cut across ranks",
     [](comm::World& w) {
       for (const auto* model : {&kMixtral, &kDeepseek, &kGranite})
         for (const int ep : {1, w.size() / 2})
           check(w, {.model = *model, .ep = ep, .options = ", expert_tensor_parallel_size: 2"});
       check(w, {.model = kQwen,
                 .strategy = "strategy: fsdp2",
                 .ep = 1,
                 .options = ", expert_tensor_parallel_size: 2, overlap_moe_expert_parallel_comm: true"});
     },
     2, 4},
    {"the auxiliary loss of each microbatch",
     [](comm::World& w) {
       for (const auto* model : {&kMixtral, &kQwen, &kGptOss}) check(w, {.model = *model, .auxiliary = true});
     },
     2, 4},
};

}  // namespace
}  // namespace automodel

int main(int argc, char** argv) {
  return automodel::test::run_rank_suite(argc, argv, automodel::kCases);
}
