// Optimizers over shards give the results of one rank: Muon, which needs whole matrices, on every mesh.
#include <fmt/format.h>

#include "parity/parity.h"
#include "rank_suite.h"

namespace automodel {
namespace {

const std::vector<std::string> kMuons = {
    "_target_: muon, lr: 0.02",
    "_target_: torch.optim.Muon, lr: 0.02, nesterov: false, momentum: 0.8, weight_decay: 0.05, adjust_lr_fn: "
    "match_rms_adamw, scalar_lr: 0.003, embed_lr: 0.002, lm_head_lr: 0.001, param_group_overrides: [{pattern: "
    "down_proj|c_proj|w2, lr_mult: 0.5, wd_mult: 0}, {pattern: norm|ln_, wd_mult: 0}]",
};

const std::string kDion = "_target_: dion.Muon, lr: 0.02, weight_decay: 0.05, embed_lr: 0.01";  // not with experts
const std::string kExperts = "num_local_experts: 4, num_experts_per_tok: 2, sliding_window: null";
const std::string kStacks = "num_local_experts: 4, num_experts_per_tok: 2, head_dim: 8, sliding_window: 8";

/// `sizes` of the mesh; the rest is data-parallel.
void check(comm::World& w, const std::string& distributed, test::TinyRun run = {}, int dp = 0) {
  if (dp == 0) dp = w.size();
  run.global_batch = 4 * dp;
  run.local_batch = 4;
  run.distributed = distributed;
  run.steps = 4;
  auto optimizers = kMuons;
  if (run.family == "llama") optimizers.push_back(kDion);
  for (const auto& optimizer : optimizers) {
    run.optimizer = optimizer;
    test::check_parity(w, run, fmt::format("{} with {{{}}}", distributed, optimizer));
  }
}

const std::vector<test::RankCase> kCases = {
    {"matrices in every kind of shard",
     [](comm::World& w) {
       for (const char* strategy :
            {"strategy: ddp", "strategy: fsdp2", "strategy: fsdp2, offload_policy: {}",
             "strategy: megatron_fsdp, zero_dp_strategy: 0", "strategy: megatron_fsdp, zero_dp_strategy: 1",
             "strategy: megatron_fsdp, zero_dp_strategy: 2", "strategy: megatron_fsdp, zero_dp_strategy: 3"})
         check(w, strategy, {.tied = true});
       if (w.size() == 4) check(w, "strategy: fsdp2, dp_size: 4, dp_replicate_size: 2");
     },
     2},
    {"matrices that tensor-parallel ranks have parts of",
     [](comm::World& w) {
       const int dp = w.size() / 2;
       for (const char* strategy : {"strategy: ddp", "strategy: fsdp2"})
         for (const char* family : {"llama", "gpt2"}) {
           test::TinyRun run{.layers = 2};
           if (std::string(family) == "gpt2")
             run.config =
                 "model_type: gpt2, n_embd: 32, n_layer: 2, n_head: 4, n_positions: 32, vocab_size: 68, "
                 "attn_pdrop: 0, resid_pdrop: 0, embd_pdrop: 0";
           check(w, fmt::format("{}, tp_size: 2", strategy), run, dp);
         }
       if (w.size() == 4) {
         check(w, "strategy: fsdp2, tp_size: 4", {.layers = 2}, 1);  // two ranks share a key-value head
         check(w, "strategy: megatron_fsdp, zero_dp_strategy: 1, tp_size: 2, cp_size: 2", {.layers = 2}, 1);
       }
     },
     2},
    {"stages",
     [](comm::World& w) {
       check(w, "strategy: fsdp2, pp_size: 2, pipeline: {pp_schedule: 1F1B, pp_microbatch_size: 2}", {.tied = true},
             w.size() / 2);
     },
     2},
    {"matrices of experts, apart and in stacks",
     [](comm::World& w) {
       for (const auto& [family, keys] : {std::pair("mixtral", kExperts), std::pair("gpt_oss", kStacks)}) {
         const test::TinyRun run{.layers = 2, .family = family, .model = keys};
         for (const char* mesh : {"strategy: fsdp2", "strategy: fsdp2, ep_size: 2", "strategy: ddp, ep_size: 2"})
           check(w, mesh, run);
         check(w, "strategy: fsdp2, tp_size: 2", run, w.size() / 2);
       }
     },
     2},
    {"parts of experts",
     [](comm::World& w) {
       const int dp = w.size() / 2;
       check(w, "strategy: megatron_fsdp, zero_dp_strategy: 1, tp_size: 2",
             {.layers = 2, .family = "mixtral", .model = kExperts, .model_parallel = "expert_tensor_parallel_size: 2"},
             dp);
       if (w.size() == 4)
         check(
             w, "strategy: megatron_fsdp, zero_dp_strategy: 3, tp_size: 2, ep_size: 2",
             {.layers = 2, .family = "mixtral", .model = kExperts, .model_parallel = "expert_tensor_parallel_size: 2"},
             dp);
     },
     2},
    {"matrices of adapters",
     [](comm::World& w) { check(w, "strategy: fsdp2", {.layers = 2, .sections = "peft: {dim: 4, alpha: 8}\n"}); }, 2},
    {"the learning rate of embeddings reaches Gemma 4's table of layer inputs",
     [](comm::World& w) {
       if (w.rank() != 0) return;
       const auto loss_after_step = [](const char* overrides) {
         test::TinyRun run;
         run.config =
             "model_type: gemma4_text, hidden_size: 32, intermediate_size: 64, num_hidden_layers: 2, "
             "num_attention_heads: 4, num_key_value_heads: 2, head_dim: 8, global_head_dim: 16, vocab_size: 68, "
             "vocab_size_per_layer_input: 68, hidden_size_per_layer_input: 8, max_position_embeddings: 128, "
             "num_kv_shared_layers: 0, sliding_window: 16";
         // No other rate moves a weight in float64.
         run.optimizer = fmt::format(
             "_target_: muon, lr: 1.0e-30, scalar_lr: 1.0e-30, embed_lr: 0.1, lm_head_lr: 1.0e-30, weight_decay: 0{}",
             overrides);
         return test::on_one_rank(test::recipe_text(run, true), 2).losses.at(1);
       };
       const auto held = loss_after_step(", param_group_overrides: [{pattern: embed_tokens_per_layer, lr_mult: 0}]");
       if (loss_after_step("") == held) throw InternalError("embed_lr does not reach embed_tokens_per_layer");
     },
     1, 1},
    {"momentum of every parameter",
     [](comm::World& w) {
       test::TinyRun run{.global_batch = 4 * w.size(), .local_batch = 4, .steps = 4};
       run.optimizer = "_target_: sgd, lr: 0.05, momentum: 0.9, nesterov: true";
       run.distributed = "strategy: fsdp2";
       test::check_parity(w, run, run.optimizer);
     },
     2},
};

}  // namespace
}  // namespace automodel

int main(int argc, char** argv) {
  return automodel::test::run_rank_suite(argc, argv, automodel::kCases);
}
