// Expert parallelism computes the gradients of one rank: float64 within 1e-9, for every router, layout of weights,
// sharding of experts, schedule and overlap.
#include "comm/loopback/loopback.h"
#include "config/recipe.h"
#include "rank_suite.h"
#include "train/verify.h"

namespace automodel {
namespace {

const char* const kMixtral =
    "model_type: mixtral, num_local_experts: 4, num_experts_per_tok: 2, intermediate_size: 24, sliding_window: null";
const char* const kQwen =
    "model_type: qwen3_moe, num_experts: 8, num_experts_per_tok: 3, moe_intermediate_size: 12, intermediate_size: 48, "
    "norm_topk_prob: true, head_dim: 8, mlp_only_layers: [1]";
const char* const kDeepseek =
    "model_type: deepseek_v3, n_routed_experts: 8, num_experts_per_tok: 2, moe_intermediate_size: 12, "
    "intermediate_size: 48, n_group: 4, topk_group: 2, n_shared_experts: 1, first_k_dense_replace: 1, q_lora_rank: 16, "
    "kv_lora_rank: 12, qk_nope_head_dim: 8, qk_rope_head_dim: 4, v_head_dim: 6";
const char* const kGptOss =
    "model_type: gpt_oss, num_local_experts: 4, num_experts_per_tok: 2, intermediate_size: 24, head_dim: 8, "
    "sliding_window: 8";

struct Case {
  const char* model;
  std::string strategy = "ddp";
  int ep = 2;
  int pp = 1;
  std::string pipeline = "1F1B";
  int per_rank = 1;
  std::string options = {};  ///< of model_parallel
  bool auxiliary = false;
  std::string sharding = {};  ///< options of the strategy
};

std::string recipe(const Case& c, int world, bool single) {
  const int dp = single ? 1 : world / c.pp;
  constexpr int kGlobal = 8;
  const int microbatch = kGlobal / (world / c.pp) / (c.pp > 1 ? 2 : 1);
  std::string text = fmt::format(
      "model: {{config: {{{}, hidden_size: 32, num_hidden_layers: {}, num_attention_heads: 4, num_key_value_heads: {}, "
      "vocab_size: 67, max_position_embeddings: 32, initializer_range: 0.2{}}}, torch_dtype: float64}}\n"
      "dataset: {{_target_: mock, vocab_size: 67, seq_length: 12, num_samples: 64}}\n"
      "step_scheduler: {{global_batch_size: {}, local_batch_size: {}, max_steps: 10, num_epochs: null}}\n"
      "optimizer: {{lr: 0.01}}\n",
      c.model, 2 * std::max(2, c.pp * c.per_rank / 2), c.model == kDeepseek ? 4 : 2,
      c.auxiliary ? ", output_router_logits: true, router_aux_loss_coef: 0.05" : "", kGlobal,
      single ? microbatch : kGlobal / dp);
  if (single) return text + "distributed: {strategy: ddp}\n";
  text += fmt::format("distributed: {{strategy: {}, dp_size: {}, ep_size: {}{}", c.strategy, dp, c.ep, c.sharding);
  if (c.pp > 1)
    text += fmt::format(", pp_size: {}, pipeline: {{pp_schedule: {}, pp_microbatch_size: {}}}", c.pp, c.pipeline,
                        microbatch);
  return text +
         fmt::format("}}\nmodel_parallel: {{virtual_pipeline_model_parallel_size: {}{}}}\n", c.per_rank, c.options);
}

config::LoadedRecipe load(const std::string& text) {
  auto loaded = config::read_recipe(text, "parity.yaml", {}, [](const std::string&) { return std::nullopt; });
  if (!loaded.problems.empty()) throw Error(ExitCode::kBadInput, loaded.problems);
  return loaded;
}

train::Trace on_one_rank(const config::LoadedRecipe& loaded, int steps) {
  train::Trace out;
  const auto outcome = comm::run_ranks(1, [&](comm::World& world) { out = train::trace_steps(loaded, world, steps); });
  if (!outcome.ok()) throw Error(outcome.code, {"reference", outcome.text, "", {}, ""});
  return out;
}

void check(comm::World& world, const Case& c) {
  constexpr int kSteps = 3;
  const auto mesh = train::trace_steps(load(recipe(c, world.size(), false)), world, kSteps);
  if (world.rank() != 0) return;
  const auto difference = train::compare(mesh, on_one_rank(load(recipe(c, world.size(), true)), kSteps));
  if (!difference.within(1e-9))
    test::rank_check_failed(
        __FILE__, __LINE__,
        fmt::format("{} {} ep {} pp {}{}: loss {:.2e}, norm {:.2e}, gradient {:.2e} of {}", c.model, c.strategy, c.ep,
                    c.pp, c.options, difference.loss, difference.norm, difference.gradient, difference.worst));
}

const std::vector<test::RankCase> kCases = {
    {"every router and layout of experts",
     [](comm::World& w) {
       for (const auto* model : {kMixtral, kQwen, kDeepseek, kGptOss}) check(w, {model, "ddp", w.size()});
     },
     1, 4},
    {"experts sharded among expert-parallel groups",
     [](comm::World& w) {
       for (const auto* model : {kQwen, kGptOss}) {
         check(w, {model, "fsdp2"});
         for (const char* level : {", zero_dp_strategy: 1", ", zero_dp_strategy: 2", ", zero_dp_strategy: 3"})
           check(w, {.model = model, .strategy = "megatron_fsdp", .sharding = level});
       }
     },
     2, 4},
    {"replicas of sharded weights",
     [](comm::World& w) {
       check(w, {.model = kQwen, .strategy = "fsdp2", .sharding = ", dp_replicate_size: 2"});
       check(w, {.model = kQwen, .strategy = "fsdp2", .ep = 4, .sharding = ", dp_replicate_size: 2"});
     },
     4, 4},
    {"experts replicated by plain data parallelism", [](comm::World& w) { check(w, {.model = kQwen, .ep = 1}); }, 2, 4},
    {"pipelines of expert-parallel stages",
     [](comm::World& w) {
       check(w, {.model = kDeepseek, .pp = 2});
       check(w, {.model = kQwen, .strategy = "fsdp2", .pp = 2, .pipeline = "Interleaved1F1B", .per_rank = 2});
       check(w, {.model = kGptOss, .pp = 2, .pipeline = "ZBVZeroBubble", .per_rank = 2});
     },
     4, 4},
    {"overlap changes nothing",
     [](comm::World& w) {
       for (const auto* model : {kDeepseek, kGptOss}) {
         check(w, {.model = model, .options = ", overlap_moe_expert_parallel_comm: true"});
         check(w, {.model = model, .options = ", overlap_dispatch_backward_with_experts_wgrad: true"});
       }
     },
     2, 4},
    {"the auxiliary loss of each microbatch",
     [](comm::World& w) {
       for (const auto* model : {kMixtral, kQwen, kGptOss}) check(w, {.model = model, .auxiliary = true});
     },
     2, 4},
};

}  // namespace
}  // namespace automodel

int main(int argc, char** argv) {
  return automodel::test::run_rank_suite(argc, argv, automodel::kCases);
}
