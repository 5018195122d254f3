// Tensor and sequence parallelism compute the gradients of one rank, alone and with pipelines and every strategy.
#include <fmt/format.h>

#include "parity/parity.h"
#include "rank_suite.h"

namespace automodel {
namespace {

/// The other ranks are data-parallel, or pipeline stages according to `pp`.
struct Mesh {
  std::string strategy = "strategy: ddp";
  bool sequence = false;
  int pp = 1;
  std::string schedule = "1F1B";
  std::string more = {};      ///< keys of distributed
  std::string megatron = {};  ///< keys of model_parallel
  int tp = 2;
};

void check(comm::World& w, const Mesh& mesh, test::TinyRun run = {}) {
  const int dp = w.size() / mesh.tp / mesh.pp;
  run.global_batch = 8 * dp;
  run.local_batch = 4;
  run.distributed = fmt::format("{}, tp_size: {}", mesh.strategy, mesh.tp);
  const bool fsdp = mesh.strategy.find("fsdp2") != std::string::npos;
  std::string megatron = mesh.megatron;
  if (mesh.sequence)
    (fsdp ? run.distributed : megatron) +=
        std::string(fsdp || !megatron.empty() ? ", " : "") + "sequence_parallel: true";
  if (mesh.pp > 1) {
    const bool two = mesh.schedule != "1F1B" && mesh.schedule != "GPipe";
    run.distributed +=
        fmt::format(", pp_size: {}, pipeline: {{pp_schedule: {}, pp_microbatch_size: 1}}", mesh.pp, mesh.schedule);
    megatron += fmt::format("{}virtual_pipeline_model_parallel_size: {}", megatron.empty() ? "" : ", ", two ? 2 : 1);
  }
  run.distributed += mesh.more;
  run.model_parallel = megatron;
  test::check_parity(
      w, run,
      fmt::format("{}, {}{}{}{}", run.distributed, run.model_parallel, mesh.sequence ? ", sequence parallel" : "",
                  run.tied ? ", tied" : "", run.model.empty() ? "" : ", " + run.model) +
          run.config);
}

const std::vector<const char*> kStrategies = {"strategy: ddp",
                                              "strategy: fsdp2",
                                              "strategy: fsdp2, reshard_after_forward: true",
                                              "strategy: megatron_fsdp, zero_dp_strategy: 1",
                                              "strategy: megatron_fsdp, zero_dp_strategy: 2",
                                              "strategy: megatron_fsdp, zero_dp_strategy: 3"};

/// Small models of families other than Llama; their tensor-parallel plans are data (arch/tensor_plan.cpp).
const std::vector<const char*> kFamilies = {
    "model_type: qwen2, hidden_size: 32, intermediate_size: 48, num_hidden_layers: 2, num_attention_heads: 4, "
    "num_key_value_heads: 2, vocab_size: 68, max_position_embeddings: 32",
    "model_type: qwen3, hidden_size: 32, intermediate_size: 48, num_hidden_layers: 2, num_attention_heads: 4, "
    "num_key_value_heads: 2, head_dim: 16, vocab_size: 68, max_position_embeddings: 32",
    "model_type: mistral, hidden_size: 32, intermediate_size: 48, num_hidden_layers: 2, num_attention_heads: 4, "
    "num_key_value_heads: 2, vocab_size: 69, max_position_embeddings: 32, sliding_window: 5",
    "model_type: gemma2, hidden_size: 32, intermediate_size: 48, num_hidden_layers: 2, num_attention_heads: 4, "
    "num_key_value_heads: 2, head_dim: 8, vocab_size: 68, max_position_embeddings: 32, sliding_window: 5, "
    "query_pre_attn_scalar: 8",
    "model_type: gemma3_text, hidden_size: 32, intermediate_size: 48, num_hidden_layers: 2, num_attention_heads: 4, "
    "num_key_value_heads: 2, head_dim: 8, vocab_size: 68, max_position_embeddings: 32, sliding_window: 5, "
    "query_pre_attn_scalar: 8",
    "model_type: phi3, hidden_size: 32, intermediate_size: 48, num_hidden_layers: 2, num_attention_heads: 4, "
    "num_key_value_heads: 2, vocab_size: 68, max_position_embeddings: 32, original_max_position_embeddings: 32, "
    "pad_token_id: 0",
    "model_type: gpt2, n_embd: 32, n_layer: 2, n_head: 4, vocab_size: 69, n_positions: 32, attn_pdrop: 0.0, "
    "embd_pdrop: 0.0, resid_pdrop: 0.0",
    "model_type: muse_glimmer_text, hidden_size: 32, intermediate_size: 48, num_hidden_layers: 2, "
    "num_attention_heads: 4, num_key_value_heads: 2, head_dim: 8, vocab_size: 68, max_position_embeddings: 32, "
    "sliding_window: 5, attention_bias: true",
    "model_type: minimax_m3_vl_text, hidden_size: 32, dense_intermediate_size: 48, intermediate_size: 12, "
    "shared_intermediate_size: 16, num_hidden_layers: 2, num_attention_heads: 4, num_key_value_heads: 2, head_dim: 8, "
    "num_local_experts: 4, num_experts_per_tok: 2, mlp_layer_types: [dense, sparse], vocab_size: 68, "
    "max_position_embeddings: 32, layer_types: [minimax_m3_sparse, minimax_m3_sparse], index_n_heads: 2, "
    "index_head_dim: 8, index_block_size: 2, index_topk_blocks: 3, swiglu_limit: 1.0",
};
constexpr int kPhi3 = 5;

/// Models with experts, whose plan in transformers covers only the other modules.
const std::vector<const char*> kExpertFamilies = {
    "model_type: mixtral, num_local_experts: 4, num_experts_per_tok: 2, sliding_window: null, num_key_value_heads: 2, ",
    "model_type: qwen3_moe, num_experts: 4, num_experts_per_tok: 2, moe_intermediate_size: 12, head_dim: 8, "
    "mlp_only_layers: [1], num_key_value_heads: 2, ",
    "model_type: deepseek_v3, n_routed_experts: 8, num_experts_per_tok: 2, moe_intermediate_size: 12, n_group: 4, "
    "topk_group: 2, n_shared_experts: 1, first_k_dense_replace: 1, q_lora_rank: 16, kv_lora_rank: 12, "
    "qk_nope_head_dim: 8, qk_rope_head_dim: 4, v_head_dim: 6, num_key_value_heads: 4, ",
    "model_type: gpt_oss, num_local_experts: 4, num_experts_per_tok: 2, head_dim: 8, sliding_window: 8, "
    "num_key_value_heads: 2, ",
};

/// Styles that no family's plan uses, on the tiny Llama.
const std::vector<const char*> kPlans = {
    "{lm_head: colwise_rep, model.embed_tokens: rowwise}",
    "{layers.*.mlp.gate_proj: colwise, layers.*.mlp.up_proj: colwise, layers.*.mlp.down_proj: rowwise}",
    "{layers.*.self_attn.q_proj: colwise_rep, layers.*.self_attn.k_proj: colwise_rep, "
    "layers.*.self_attn.v_proj: colwise_rep, layers.*.self_attn.o_proj: rowwise_rep, "
    "layers.*.mlp.gate_proj: sequence_parallel, layers.*.mlp.up_proj: sequence_parallel, "
    "layers.*.mlp.down_proj: sequence_parallel}",
    "{layers.*.self_attn.q_proj: colwise, layers.*.self_attn.k_proj: colwise, layers.*.self_attn.v_proj: colwise, "
    "layers.*.self_attn.o_proj: rowwise, lm_head: colwise}",
};

const std::vector<test::RankCase> kCases = {
    {"tensor parallelism",
     [](comm::World& w) {
       for (const bool tied : {false, true}) check(w, {}, {.tied = tied});
       check(w, {}, {.model = "attention_bias: true, mlp_bias: true"});
     },
     2},
    {"sequence parallelism",
     [](comm::World& w) {
       for (const bool tied : {false, true}) check(w, {.sequence = true}, {.tied = tied});
       check(w, {.sequence = true}, {.model = "attention_bias: true, mlp_bias: true"});
     },
     2},
    {"float32 over ten steps",
     [](comm::World& w) {
       for (const bool sequence : {false, true}) check(w, {.sequence = sequence}, {.dtype = "float32", .steps = 10});
     },
     2},
    {"every family",
     [](comm::World& w) {
       for (const char* family : kFamilies)
         for (const bool sequence : {false, true}) check(w, {.sequence = sequence}, {.config = family});
     },
     2, 2},
    {"recurrent layers",
     [](comm::World& w) {
       for (const auto& model : test::kRecurrentModels)
         for (const bool sequence : {false, true}) check(w, {.sequence = sequence}, {.config = model});
     },
     2, 2},
    {"layers that differ in their heads",
     [](comm::World& w) {
       for (const auto& model : test::kUnlikeModels)
         for (const bool sequence : {false, true}) {
           check(w, {.sequence = sequence}, {.config = model});
           check(w, {.strategy = "strategy: fsdp2, activation_checkpointing: full", .sequence = sequence},
                 {.config = model});
         }
     },
     2, 2},
    {"key-value heads that ranks share, also of layers that use the keys of others",
     [](comm::World& w) {
       auto model = test::kUnlikeModels.front();
       const std::string two = "num_key_value_heads: 2";
       model.replace(model.find(two), two.size(), "num_key_value_heads: 1");
       for (const int tp : {2, 4})
         for (const bool sequence : {false, true}) check(w, {.sequence = sequence, .tp = tp}, {.config = model});
     },
     4, 4},
    {"plans of recipes and of transformers",
     [](comm::World& w) {
       for (const bool sequence : {false, true}) {
         for (const char* plan : kPlans)
           check(w, {.strategy = "strategy: fsdp2", .sequence = sequence, .more = std::string(", tp_plan: ") + plan},
                 {.layers = 2});
         check(w, {.strategy = "strategy: fsdp2", .sequence = sequence, .more = ", tp_plan: auto"},
               {.config = kFamilies[kPhi3]});
         for (const std::string family : kExpertFamilies)
           check(w, {.strategy = "strategy: fsdp2", .sequence = sequence, .more = ", tp_plan: auto"},
                 {.config = family + "hidden_size: 32, intermediate_size: 48, num_hidden_layers: 2, "
                                     "num_attention_heads: 4, vocab_size: 68, max_position_embeddings: 32"});
       }
     },
     2, 2},
    {"more ranks than key-value heads",
     [](comm::World& w) {
       const auto config = [](const std::string& family, int kv_heads, const std::string& more = {}) {
         return fmt::format(
             "model_type: {}, hidden_size: 32, intermediate_size: 48, num_hidden_layers: 2, num_attention_heads: 4, "
             "num_key_value_heads: {}, vocab_size: 68, max_position_embeddings: 32{}",
             family, kv_heads, more);
       };
       for (const char* strategy : {"strategy: ddp", "strategy: fsdp2", "strategy: megatron_fsdp, zero_dp_strategy: 2"})
         for (const bool sequence : {false, true}) {
           check(w, {.strategy = strategy, .sequence = sequence}, {.config = config("llama", 1)});
           check(w, {.strategy = strategy, .sequence = sequence},
                 {.config = config("llama", 1, ", attention_bias: true")});
           if (w.size() % 4 != 0) continue;
           check(w, {.strategy = strategy, .sequence = sequence, .tp = 4}, {.config = config("llama", 1)});
           check(w, {.strategy = strategy, .sequence = sequence, .tp = 4}, {.config = config("qwen2", 2)});
           check(w, {.strategy = strategy, .sequence = sequence, .tp = 4},
                 {.config = config("qwen3", 2, ", head_dim: 16")});
         }
       if (w.size() % 8 != 0) return;
       for (const char* type : {"p2p", "all_gather"})
         check(w, {.strategy = "strategy: ddp, cp_size: 2", .pp = 2, .megatron = std::string("cp_comm_type: ") + type},
               {.config = config("llama", 1)});
     },
     2},
    {"recomputed layers",
     [](comm::World& w) {
       for (const char* kind : {"full", "selective"})
         for (const bool sequence : {false, true})
           check(w, {.sequence = sequence, .more = std::string(", activation_checkpointing: ") + kind});
     },
     2, 2},
    {"communication under products",
     [](comm::World& w) {
       check(w, {.strategy = "strategy: fsdp2", .sequence = true, .more = ", enable_async_tensor_parallel: true"},
             {.model = "attention_bias: true, mlp_bias: true"});
       for (const char* keys : {"tp_comm_overlap: true", "tp_comm_overlap: true, tp_comm_overlap_rs_dgrad: true",
                                "tp_comm_overlap: true, tp_comm_overlap_ag: false, tp_comm_bulk_wgrad: false",
                                "tp_comm_overlap: true, tp_comm_overlap_rs: false, tp_comm_bulk_dgrad: false",
                                "tp_comm_overlap: true, tp_comm_overlap_disable_qkv: true, "
                                "tp_comm_overlap_disable_fc1: true"})
         check(w, {.sequence = true, .megatron = keys});
     },
     2},
    {"with stages",
     [](comm::World& w) {
       for (const bool sequence : {false, true})
         for (const char* schedule : {"1F1B", "ZBVZeroBubble"})
           check(w, {.sequence = sequence, .pp = 2, .schedule = schedule}, {.tied = sequence});
     },
     4},
    {"with every strategy",
     [](comm::World& w) {
       for (const bool sequence : {false, true})
         for (const char* strategy : kStrategies)
           check(w, {.strategy = strategy, .sequence = sequence}, {.tied = sequence});
     },
     4},
    {"with stages and every strategy",
     [](comm::World& w) {
       for (const char* strategy : kStrategies)
         check(w, {.strategy = strategy, .sequence = true, .pp = 2, .schedule = "InterleavedZeroBubble"},
               {.tied = true});
     },
     8},
};

}  // namespace
}  // namespace automodel

int main(int argc, char** argv) {
  return automodel::test::run_rank_suite(argc, argv, automodel::kCases);
}
