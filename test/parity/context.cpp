// Context parallelism computes the gradients of one rank, with every exchange of keys and every other parallelism.
#include <fmt/format.h>

#include "parity/parity.h"
#include "rank_suite.h"

namespace automodel {
namespace {

struct Mesh {
  int cp = 2;
  std::string exchange = "cp_comm_type: p2p";
  std::string strategy = "strategy: ddp";
  int tp = 1;
  int pp = 1;
  bool sequence = false;
  std::string schedule = "1F1B";
};

void check(comm::World& w, const Mesh& mesh, test::TinyRun run = {}) {
  const int dp = w.size() / mesh.cp / mesh.tp / mesh.pp;
  run.global_batch = 8 * dp;
  run.local_batch = 4;
  run.distributed = fmt::format("{}, cp_size: {}, tp_size: {}", mesh.strategy, mesh.cp, mesh.tp);
  run.model_parallel = mesh.exchange;
  if (mesh.sequence) run.model_parallel += ", sequence_parallel: true";
  if (mesh.pp > 1) {
    run.distributed +=
        fmt::format(", pp_size: {}, pipeline: {{pp_schedule: {}, pp_microbatch_size: 1}}", mesh.pp, mesh.schedule);
    run.model_parallel += fmt::format(", virtual_pipeline_model_parallel_size: {}", mesh.schedule == "1F1B" ? 1 : 2);
  }
  test::check_parity(w, run, fmt::format("{}, {}{}", run.distributed, run.model_parallel, run.tied ? ", tied" : ""));
}

const std::vector<const char*> kExchanges = {"cp_comm_type: p2p", "cp_comm_type: all_gather", "cp_comm_type: a2a"};
constexpr const char* kLevels = "cp_comm_type: a2a+p2p, hierarchical_context_parallel_sizes: [2, 2]";

/// Models whose attention sees `most` tokens of the 16, which an index chooses: for all heads, with layers that use the
/// choice of the layer before; and in blocks, by each of two heads.
std::vector<std::string> indexed_models(int most) {
  const std::string latent =
      "hidden_size: 32, intermediate_size: 48, num_hidden_layers: 2, num_attention_heads: 4, num_key_value_heads: 4, "
      "vocab_size: 68, max_position_embeddings: 32, n_routed_experts: 8, num_experts_per_tok: 2, "
      "moe_intermediate_size: 12, n_group: 4, topk_group: 2, n_shared_experts: 1, first_k_dense_replace: 1, "
      "q_lora_rank: 16, kv_lora_rank: 12, qk_nope_head_dim: 8, qk_rope_head_dim: 4, v_head_dim: 6, index_n_heads: 2, "
      "index_head_dim: 8, index_topk: " +
      std::to_string(most);
  return {"model_type: deepseek_v32, " + latent, "model_type: glm_moe_dsa, indexer_types: [full, shared], " + latent,
          "model_type: minimax_m3_vl_text, hidden_size: 32, dense_intermediate_size: 48, num_hidden_layers: 2, "
          "num_attention_heads: 4, num_key_value_heads: 2, head_dim: 8, num_local_experts: 4, num_experts_per_tok: 2, "
          "intermediate_size: 12, shared_intermediate_size: 16, mlp_layer_types: [dense, sparse], vocab_size: 68, "
          "max_position_embeddings: 32, layer_types: [minimax_m3_sparse, full_attention], index_n_heads: 2, "
          "index_head_dim: 8, index_block_size: 2, index_topk_blocks: " +
              std::to_string(most / 2)};
}

/// Rows of four tokens, a length that context-parallel packs need no padding for, packed with attention and states
/// within each row.
constexpr const char* kSentences =
    "{_target_: nemo_automodel.components.datasets.llm.mock.build_unpacked_dataset, num_sentences: 64, mean_len: 3, "
    "std_len: 0, vocab_size: 60, max_sentence_len: 12, seed: 3}";
constexpr const char* kPacks = "packed_sequence: {packed_sequence_size: 16}\n";

const std::vector<test::RankCase> kCases = {
    {"every exchange on two ranks",
     [](comm::World& w) {
       for (const char* exchange : kExchanges) check(w, {.exchange = exchange});
     },
     2},
    {"rings of four, and two levels",
     [](comm::World& w) {
       for (const char* exchange : {kExchanges[0], kExchanges[1], kLevels})
         check(w, {.cp = 4, .exchange = exchange}, {.tied = true});
     },
     4},
    {"windows, soft caps and learned positions",
     [](comm::World& w) {
       for (const char* family :
            {"model_type: gemma2, hidden_size: 32, intermediate_size: 48, num_hidden_layers: 2, num_attention_heads: "
             "4, "
             "num_key_value_heads: 2, head_dim: 8, vocab_size: 68, max_position_embeddings: 32, sliding_window: 5, "
             "query_pre_attn_scalar: 8",
             "model_type: gpt2, n_embd: 32, n_layer: 2, n_head: 4, vocab_size: 69, n_positions: 32, attn_pdrop: 0.0, "
             "embd_pdrop: 0.0, resid_pdrop: 0.0",
             "model_type: muse_glimmer_text, hidden_size: 32, intermediate_size: 48, num_hidden_layers: 2, "
             "num_attention_heads: 4, num_key_value_heads: 2, head_dim: 8, vocab_size: 68, max_position_embeddings: "
             "32, sliding_window: 5"})
         for (const char* exchange : kExchanges) check(w, {.exchange = exchange}, {.config = family});
     },
     2, 2},
    {"recomputed layers",
     [](comm::World& w) {
       for (const char* exchange : kExchanges)
         check(w, {.exchange = exchange, .strategy = "strategy: ddp, activation_checkpointing: full"});
     },
     2, 2},
    {"float32 over ten steps",
     [](comm::World& w) {
       for (const char* exchange : kExchanges) check(w, {.exchange = exchange}, {.dtype = "float32", .steps = 10});
     },
     2, 2},
    {"with tensor and sequence parallelism",
     [](comm::World& w) {
       for (const bool sequence : {false, true}) check(w, {.tp = 2, .sequence = sequence}, {.tied = sequence});
     },
     4},
    {"with stages",
     [](comm::World& w) {
       for (const char* schedule : {"1F1B", "ZBVZeroBubble"})
         check(w, {.exchange = kExchanges[1], .pp = 2, .schedule = schedule});
     },
     4},
    {"tokens that an index chooses, and all of them",
     [](comm::World& w) {
       for (const auto& model : indexed_models(4)) {
         check(w, {.strategy = "strategy: ddp, activation_checkpointing: full"}, {.config = model});
         check(w, {.exchange = kExchanges[2]}, {.config = model, .dataset = kSentences, .sections = kPacks});
       }
       for (const auto& model : indexed_models(16))
         for (const char* exchange : kExchanges) check(w, {.exchange = exchange}, {.config = model});
     },
     2, 2},
    {"tokens that an index chooses for some queries at a time",
     [](comm::World& w) {
       // More scores, in 4 sequences of a rank and in 8 of one rank, than exist at once.
       for (auto model : indexed_models(16)) {
         const std::string length = "max_position_embeddings: ";
         model.replace(model.find(length), length.size() + 2, length + "1536");
         check(w, {}, {.config = model, .dataset = "{_target_: mock, vocab_size: 68, seq_length: 1536}", .steps = 1});
       }
     },
     2, 2},
    {"tokens that an index chooses, with more ranks than key heads, tensor parallelism and stages",
     [](comm::World& w) {
       for (const auto& model : indexed_models(4)) {
         check(w, {.cp = 4, .exchange = kLevels}, {.config = model});
         check(w, {.strategy = "strategy: fsdp2", .tp = 2, .sequence = true}, {.config = model});
         if (model.find("shared]") == std::string::npos) check(w, {.pp = 2}, {.config = model});
       }
     },
     4, 4},
    {"layers that differ in their heads",
     [](comm::World& w) {
       for (const auto& model : test::kUnlikeModels) {
         check(w, {.strategy = "strategy: fsdp2, activation_checkpointing: full"}, {.config = model});
         for (const char* exchange : kExchanges)
           check(w, {.exchange = exchange}, {.config = model, .dataset = kSentences, .sections = kPacks});
       }
     },
     2, 2},
    {"recurrent layers, alone and in packs",
     [](comm::World& w) {
       for (const auto& model : test::kRecurrentModels) {
         check(w, {.strategy = "strategy: ddp, activation_checkpointing: full"}, {.config = model});
         check(w, {.exchange = kExchanges[2]}, {.config = model, .dataset = kSentences, .sections = kPacks});
       }
     },
     2, 2},
    {"recurrent layers with more ranks than key groups, tensor parallelism and stages",
     [](comm::World& w) {
       for (const auto& model : test::kRecurrentModels) {
         check(w, {.cp = 4, .exchange = kLevels}, {.config = model});
         check(w, {.strategy = "strategy: fsdp2", .tp = 2, .sequence = true}, {.config = model});
         check(w, {.pp = 2}, {.config = model});
       }
     },
     4, 4},
    {"short convolutions, whose look back spans several chunks and documents",
     [](comm::World& w) {
       // Chunks of 2 tokens, of which a convolution looks back to 1, and to those of two and of three chunks.
       std::string eights = kSentences;  // four ranks divide rows of eight tokens without padding
       eights.replace(eights.find("mean_len: 3"), 11, "mean_len: 7");
       for (const int taps : {2, 5, 7}) {
         const auto model = fmt::format(
             "model_type: lfm2, hidden_size: 32, intermediate_size: 48, num_attention_heads: 4, num_key_value_heads: "
             "2, "
             "vocab_size: 68, max_position_embeddings: 32, num_hidden_layers: 2, layer_types: [conv, conv], conv_bias: "
             "true, conv_L_cache: {}",
             taps);
         check(w, {.cp = 4, .strategy = "strategy: ddp, activation_checkpointing: full"}, {.config = model});
         check(w, {.cp = 4}, {.config = model, .dataset = eights, .sections = kPacks});
         check(w, {.tp = 2}, {.config = model, .dataset = kSentences, .sections = kPacks});
       }
     },
     4, 4},
    {"with every strategy",
     [](comm::World& w) {
       for (const char* strategy :
            {"strategy: ddp", "strategy: fsdp2", "strategy: fsdp2, reshard_after_forward: true",
             "strategy: megatron_fsdp, zero_dp_strategy: 1", "strategy: megatron_fsdp, zero_dp_strategy: 2",
             "strategy: megatron_fsdp, zero_dp_strategy: 3"})
         check(w, {.strategy = strategy}, {.tied = true});
     },
     4},
    {"all at once",
     [](comm::World& w) {
       for (const char* strategy : {"strategy: fsdp2", "strategy: megatron_fsdp, zero_dp_strategy: 2"})
         check(w, {.strategy = strategy, .tp = 2, .pp = 2, .sequence = true, .schedule = "InterleavedZeroBubble"});
     },
     8},
};

}  // namespace
}  // namespace automodel

int main(int argc, char** argv) {
  return automodel::test::run_rank_suite(argc, argv, automodel::kCases);
}
