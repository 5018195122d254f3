#include "plan/tensor_choice.h"

#include <catch2/catch.hpp>
#include <fmt/format.h>

#include "estimate/estimated_plan.h"

namespace automodel::plan {
namespace {

/// The plan of a Llama with 8 heads, 4 key-value heads and 60 tokens. `more`: further lines of the recipe.
estimate::PlanResult planned(const std::string& distributed, const std::string& model = "",
                             const std::string& more = "") {
  const std::string config =
      model.empty() ? "model_type: llama, hidden_size: 64, intermediate_size: 96, num_hidden_layers: 2, "
                      "num_attention_heads: 8, num_key_value_heads: 4, vocab_size: 99, max_position_embeddings: 128"
                    : model;
  const auto loaded = config::read_recipe(
      "model: {config: {" + config + "}}\ndataset: {_target_: mock, vocab_size: 99, seq_length: 60}\n" +
          "step_scheduler: {global_batch_size: 8, local_batch_size: 1}\ndistributed: {" + distributed + "}\n" + more,
      "r.yaml", {}, [](const std::string&) { return std::nullopt; });
  if (!loaded.problems.empty()) FAIL(to_text(loaded.problems));
  return estimate::make_plan(loaded, {});
}

std::string only_problem(const estimate::PlanResult& result) {
  if (result.problems.size() != 1) FAIL(to_text(result.problems));
  return std::string(result.problems[0].id) + " " + result.problems[0].key;
}

arch::TensorStyle style(const estimate::PlanResult& result, const std::string& module) {
  if (!result.plan) FAIL(to_text(result.problems));
  return result.plan->tensor.style_of(module);
}

}  // namespace

using arch::TensorStyle;

TEST_CASE("tensor-parallel style names are those of translate_to_torch_parallel_style", "[plan]") {
  CHECK(arch::parse_tensor_style("colwise") == TensorStyle::kColwise);
  CHECK(arch::parse_tensor_style("rowwise") == TensorStyle::kRowwise);
  CHECK(arch::parse_tensor_style("colwise_rep") == TensorStyle::kColwiseGathered);
  CHECK(arch::parse_tensor_style("colwise_gather_output") == TensorStyle::kColwiseGathered);
  CHECK(arch::parse_tensor_style("rowwise_rep") == TensorStyle::kRowwiseSplit);
  CHECK(arch::parse_tensor_style("sequence_parallel") == TensorStyle::kSequence);
  CHECK(arch::parse_tensor_style("replicated_with_grad_allreduce") == TensorStyle::kReplicatedSummedGradient);
  CHECK_FALSE(arch::parse_tensor_style("diagonal"));
  for (const auto word : arch::tensor_style_words())
    CHECK(arch::parse_tensor_style(arch::name_of(*arch::parse_tensor_style(word))) == arch::parse_tensor_style(word));
}

TEST_CASE("a star in a tp_plan pattern matches exactly one name component", "[plan]") {
  CHECK(arch::matches("model.layers.*.mlp.up_proj", "model.layers.11.mlp.up_proj"));
  CHECK_FALSE(arch::matches("model.layers.*.up_proj", "model.layers.11.mlp.up_proj"));
  CHECK_FALSE(arch::matches("model.layers.*", "model.layers.11.mlp"));
  CHECK_FALSE(arch::matches("model.layers.*.mlp", "model.layers.1"));
}

TEST_CASE("a recipe without a tp_plan gets the plan of the model family", "[plan]") {
  const auto result = planned("tp_size: 4");
  CHECK(style(result, "model.layers.1.self_attn.k_proj") == TensorStyle::kColwise);
  CHECK(style(result, "model.layers.1.self_attn.o_proj") == TensorStyle::kRowwise);
  CHECK(style(result, "model.embed_tokens") == TensorStyle::kRowwise);
  CHECK(style(result, "lm_head") == TensorStyle::kColwise);
  CHECK(planned("tp_size: 1").plan->tensor.rows.empty());
}

TEST_CASE("tp_plan auto selects the model's own plan and is refused if there is none", "[plan]") {
  const std::string phi =
      "model_type: phi3, hidden_size: 64, intermediate_size: 96, num_hidden_layers: 2, num_attention_heads: 8, "
      "num_key_value_heads: 4, vocab_size: 99, pad_token_id: 0";
  CHECK(style(planned("tp_size: 2, tp_plan: auto", phi), "model.layers.0.self_attn.qkv_proj") ==
        TensorStyle::kColwiseGathered);
  CHECK(style(planned("tp_size: 2", phi), "model.layers.0.self_attn.qkv_proj") == TensorStyle::kColwise);
  const std::string gpt2 = "model_type: gpt2, n_embd: 64, n_layer: 2, n_head: 8, vocab_size: 99, n_positions: 128";
  CHECK(only_problem(planned("tp_size: 2, tp_plan: auto", gpt2)) == "unknown-tp-plan distributed.tp_plan");
  CHECK(style(planned("tp_size: 2", gpt2), "transformer.h.0.attn.c_attn") == TensorStyle::kColwise);
}

TEST_CASE("tp_plan auto shards attention and MLPs of MoE models and replicates their norms", "[plan]") {
  const std::string sizes =
      "hidden_size: 64, intermediate_size: 96, num_hidden_layers: 2, num_attention_heads: 8, vocab_size: 100, ";
  const auto plan_of = [&](const std::string& family, const std::string& keys) {
    auto result = planned("tp_size: 2, tp_plan: auto", "model_type: " + family + ", " + sizes + keys);
    INFO(family << to_text(result.problems));
    REQUIRE(result.plan);
    return result;
  };
  const std::string experts = "num_local_experts: 4, num_experts_per_tok: 2, num_key_value_heads: 4";
  const auto mixtral = plan_of("mixtral", experts);
  CHECK(style(mixtral, "model.layers.0.self_attn.q_proj") == TensorStyle::kColwise);
  CHECK(style(mixtral, "model.layers.0.self_attn.o_proj") == TensorStyle::kRowwise);
  CHECK(style(mixtral, "model.layers.0.input_layernorm") == TensorStyle::kReplicated);
  CHECK(style(mixtral, "lm_head") == TensorStyle::kColwise);

  const auto qwen =
      plan_of("qwen3_moe",
              "num_experts: 4, num_experts_per_tok: 2, moe_intermediate_size: 16, num_key_value_heads: 4, "
              "mlp_only_layers: [1]");
  CHECK(style(qwen, "model.layers.0.self_attn.q_norm") == TensorStyle::kReplicatedSummedGradient);
  CHECK(style(qwen, "model.layers.1.mlp.down_proj") == TensorStyle::kRowwise);

  const auto gpt_oss = plan_of("gpt_oss", experts + ", head_dim: 8");
  CHECK(style(gpt_oss, "model.layers.0.self_attn.sinks") == TensorStyle::kColwise);

  const auto deepseek = plan_of("deepseek_v3",
                                "n_routed_experts: 8, num_experts_per_tok: 2, moe_intermediate_size: 12, n_group: 4, "
                                "topk_group: 2, n_shared_experts: 1, first_k_dense_replace: 1, q_lora_rank: 16, "
                                "kv_lora_rank: 12, qk_nope_head_dim: 8, qk_rope_head_dim: 4, v_head_dim: 6");
  CHECK(style(deepseek, "model.layers.1.self_attn.kv_b_proj") == TensorStyle::kColwise);
  CHECK(style(deepseek, "model.layers.1.self_attn.kv_a_proj_with_mqa") == TensorStyle::kReplicated);
  CHECK(style(deepseek, "model.layers.1.mlp.shared_experts.up_proj") == TensorStyle::kColwise);
}

TEST_CASE("a tp_plan mapping replaces the family's plan, with or without the outer module's name", "[plan]") {
  const auto result = planned(
      "tp_size: 2, tp_plan: {layers.*.mlp.gate_proj: colwise, layers.*.mlp.up_proj: colwise, "
      "model.layers.*.mlp.down_proj: rowwise, lm_head: colwise_rep}");
  CHECK(style(result, "model.layers.1.mlp.up_proj") == TensorStyle::kColwise);
  CHECK(style(result, "model.layers.1.self_attn.q_proj") == TensorStyle::kReplicated);
  CHECK(style(result, "lm_head") == TensorStyle::kColwiseGathered);
}

TEST_CASE("mistakes in a tp_plan mapping are reported", "[plan]") {
  CHECK(only_problem(planned("tp_size: 2, tp_plan: {lm_head: sideways}")) == "unknown-style distributed.tp_plan");
  CHECK(only_problem(planned("tp_size: 2, tp_plan: {layers.*.mlp.gat_proj: colwise}")) ==
        "unknown-module distributed.tp_plan");
  CHECK(only_problem(planned("tp_size: 2, tp_plan: my.module.plan")) == "unknown-tp-plan distributed.tp_plan");
  CHECK(only_problem(planned("tp_size: 2, tp_plan: {layers.*.mlp.gate_proj: colwise}")) ==
        "tp-plan distributed.tp_plan");
  CHECK(only_problem(planned("tp_size: 2, tp_plan: {layers.*.mlp.gate_proj: colwise, layers.*.mlp.up_proj: colwise, "
                             "layers.*.mlp.down_proj: rowwise_rep}")) == "tp-plan distributed.tp_plan");
  CHECK(only_problem(planned("tp_size: 2, tp_plan: {layers.1.self_attn.o_proj: rowwise}")) ==
        "tp-plan distributed.tp_plan");
}

TEST_CASE("sizes that tensor parallelism cannot divide are refused in the plan", "[plan]") {
  const std::string phi =
      "model_type: phi3, hidden_size: 64, intermediate_size: 96, num_hidden_layers: 2, num_attention_heads: 8, "
      "num_key_value_heads: 4, vocab_size: 99, pad_token_id: 0";
  const auto heads = planned("tp_size: 8", phi);
  CHECK(only_problem(heads) == "indivisible distributed.tp_size");
  CHECK(heads.problems[0].message.find("num_key_value_heads 4") != std::string::npos);
  CHECK(heads.problems[0].help.find("1, 2, 4 for") != std::string::npos);
  CHECK(exit_code(heads.problems) == ExitCode::kRefused);
  const std::string twelve =
      "model_type: llama, hidden_size: 96, intermediate_size: 96, num_hidden_layers: 2, num_attention_heads: 12, "
      "num_key_value_heads: 4, vocab_size: 99, max_position_embeddings: 128";
  const auto six = planned("tp_size: 6", twelve);
  CHECK(only_problem(six) == "indivisible distributed.tp_size");
  CHECK(six.problems[0].help.find("1, 2, 4, 12") != std::string::npos);
  CHECK(planned("tp_size: 12", twelve).plan);  // three ranks share a key-value head
  const std::string wide =
      "model_type: llama, hidden_size: 64, intermediate_size: 98, num_hidden_layers: 2, num_attention_heads: 8, "
      "num_key_value_heads: 4, vocab_size: 99, max_position_embeddings: 128";
  CHECK(only_problem(planned("tp_size: 4", wide)) == "indivisible distributed.tp_size");
  // 60 tokens: divisible by 4 ranks, not by 8; the vocabulary of 99 is padded.
  CHECK(planned("tp_size: 4, sequence_parallel: true").plan);
  CHECK(only_problem(planned("tp_size: 4, cp_size: 2, sequence_parallel: true")) == "indivisible dataset.seq_length");
  CHECK(planned("tp_size: 2, sequence_parallel: true").plan->tensor.sequence_parallel);
}

TEST_CASE("options that overlap tensor-parallel communication need sequence parallelism", "[plan]") {
  const auto megatron = [](const std::string& keys) {
    return planned("strategy: ddp, tp_size: 2", "", "model_parallel: {" + keys + "}\n");
  };
  const auto async = planned("tp_size: 2, sequence_parallel: true, enable_async_tensor_parallel: true");
  REQUIRE(async.plan);
  CHECK(async.plan->tensor.overlap.gather);
  CHECK(async.plan->tensor.overlap.scatter);
  CHECK(only_problem(megatron("tp_comm_overlap: true")) == "bad-value model_parallel.tp_comm_overlap");
  const auto overlap = megatron("tp_comm_overlap: true, sequence_parallel: true, tp_comm_overlap_rs: false");
  REQUIRE(overlap.plan);
  CHECK(overlap.plan->tensor.overlap.gather);
  CHECK_FALSE(overlap.plan->tensor.overlap.scatter);
  CHECK(overlap.plan->tensor.overlap.scatter_under_weights);
  const auto alone = megatron("tp_comm_overlap_ag: false");
  REQUIRE(alone.plan);
  REQUIRE(alone.plan->warnings.size() == 1);
  CHECK(alone.plan->warnings[0].key == "model_parallel.tp_comm_overlap_ag");
}

TEST_CASE("a switch for communication overlap without a layer that it acts on is reported", "[plan]") {
  const auto keys_without_effect = [](const std::string& model, const std::string& own) {
    const auto result =
        planned("strategy: ddp, tp_size: 2", "hidden_size: 64, num_hidden_layers: 2, vocab_size: 99, " + model,
                "model_parallel: {tp_comm_overlap: true, sequence_parallel: true, " + own + "}\n");
    INFO(to_text(result.problems));
    REQUIRE(result.plan);
    std::string out;
    for (const auto& warning : result.plan->warnings)
      if (warning.id == "no-effect") out += warning.key + " ";
    return out;
  };
  const std::string heads = "num_attention_heads: 8, max_position_embeddings: 128, intermediate_size: 96, ";
  const std::string both = "tp_comm_overlap_disable_qkv: true, tp_comm_overlap_disable_fc1: true";
  CHECK(keys_without_effect(heads + "model_type: llama", both).empty());
  CHECK(keys_without_effect(heads + "model_type: mixtral, num_local_experts: 4, num_experts_per_tok: 2", both) ==
        "model_parallel.tp_comm_overlap_disable_fc1 ");
  CHECK(keys_without_effect("model_type: mamba2, state_size: 16, num_heads: 8, head_dim: 16, expand: 2, n_groups: 2",
                            both) == "model_parallel.tp_comm_overlap_disable_qkv ");
}

TEST_CASE("recurrent states are divided by heads over tensor-parallel ranks", "[plan]") {
  const std::string mamba =
      "model_type: bamba, hidden_size: 64, intermediate_size: 96, num_hidden_layers: 2, num_attention_heads: 8, "
      "num_key_value_heads: 4, vocab_size: 99, attn_layer_indices: [1], mamba_n_heads: 8, mamba_d_head: 16, "
      "mamba_d_state: 8, mamba_n_groups: ";
  const auto divided = planned("tp_size: 2", mamba + "2");
  CHECK(style(divided, "model.layers.0.mamba.in_proj") == TensorStyle::kColwise);
  CHECK(style(divided, "model.layers.0.mamba.out_proj") == TensorStyle::kRowwise);
  const auto one_group = planned("tp_size: 2", mamba + "1");
  CHECK(only_problem(one_group) == "indivisible distributed.tp_size");
  CHECK(one_group.problems[0].message.find("key groups") != std::string::npos);
  CHECK(only_problem(planned("tp_size: 2, tp_plan: {'model.layers.*.mamba.in_proj': replicated}", mamba + "2")) ==
        "tp-plan distributed.tp_plan");
}

TEST_CASE("context-parallel ranks divide the heads of recurrent states, but nothing of short convolutions", "[plan]") {
  const std::string mamba =
      "model_type: bamba, hidden_size: 48, intermediate_size: 96, num_hidden_layers: 2, num_attention_heads: 4, "
      "num_key_value_heads: 4, vocab_size: 99, attn_layer_indices: [1], mamba_n_heads: 6, mamba_d_head: 16, "
      "mamba_d_state: 8, mamba_n_groups: ";
  const auto on = [&](int cp, const std::string& groups) {
    return planned(fmt::format("strategy: ddp, dp_size: 1, cp_size: {}", cp), mamba + groups);
  };
  for (const char* groups : {"1", "2", "3", "6"}) CHECK(on(6, groups).plan);  // more ranks than groups share a group
  CHECK(on(2, "1").plan);
  const auto heads = on(5, "1"), groups = on(2, "3");
  CHECK(only_problem(heads) == "recurrent-context distributed.cp_size");
  CHECK(exit_code(heads.problems) == ExitCode::kRefused);
  CHECK(heads.problems[0].message ==
        "layer 0 is Mamba-2: its 6 heads per rank are not divisible by cp_size 5, and its state is passed from token "
        "to token");
  CHECK(groups.problems[0].message.find("its 3 key groups per rank are not divisible by cp_size 2") !=
        std::string::npos);
  const std::string conv =
      "model_type: lfm2, hidden_size: 36, intermediate_size: 48, num_hidden_layers: 2, num_attention_heads: 6, "
      "num_key_value_heads: 6, vocab_size: 99, layer_types: [conv, full_attention]";
  CHECK(planned("strategy: ddp, dp_size: 1, cp_size: 3, tp_size: 2", conv).plan);
  CHECK(planned("strategy: ddp, dp_size: 1, cp_size: 5", conv).plan);  // of 36 channels
}

TEST_CASE("layers that share selected tokens cannot be split across stages, and choices not over ranks without heads",
          "[plan]") {
  const auto glm = [](const std::string& kinds) {
    return "model_type: glm_moe_dsa, hidden_size: 64, intermediate_size: 96, moe_intermediate_size: 32, "
           "num_hidden_layers: 4, num_attention_heads: 8, num_key_value_heads: 8, vocab_size: 99, "
           "max_position_embeddings: 128, n_routed_experts: 4, num_experts_per_tok: 2, q_lora_rank: 16, "
           "kv_lora_rank: 16, qk_nope_head_dim: 8, qk_rope_head_dim: 8, v_head_dim: 8, index_head_dim: 16, "
           "index_n_heads: 2, indexer_types: [" +
           kinds + "], index_topk: ";
  };
  const std::string in_pairs = glm("full, shared, full, shared"), one = glm("full, shared, shared, shared");
  const std::string two_stages = "strategy: ddp, pp_size: 2, pipeline: {pp_schedule: 1F1B, pp_microbatch_size: 1}";
  CHECK(planned("tp_size: 2", in_pairs + "8").plan);
  CHECK(planned("strategy: ddp, cp_size: 2", in_pairs + "8").plan);
  const auto odd = planned("strategy: ddp, dp_size: 1, cp_size: 3", in_pairs + "8");
  CHECK(only_problem(odd) == "recurrent-context distributed.cp_size");
  CHECK(odd.problems[0].message.find("its 8 heads per rank are not divisible by cp_size 3") != std::string::npos);
  CHECK(planned("strategy: ddp, dp_size: 1, cp_size: 3", in_pairs + "60").plan);
  CHECK(planned(two_stages, in_pairs + "8").plan);
  const auto apart = planned(two_stages, one + "8");
  CHECK(only_problem(apart) == "split-conflict distributed.pipeline");
  CHECK(apart.problems[0].message == "stage 1 begins with layer 2, which uses the tokens selected by layer 0");
  CHECK(planned(two_stages, one + "60").plan);  // all 60 tokens are selected
}

TEST_CASE("Megatron's cp_comm_type selects the levels of context parallelism", "[plan]") {
  const auto levels = [](const std::string& keys, const std::string& sizes = "cp_size: 2") {
    return planned("strategy: ddp, " + sizes, "", "model_parallel: {" + keys + "}\n");
  };
  CHECK(levels("cp_comm_type: p2p").plan->context.keys == 2);
  CHECK(levels("cp_comm_type: all_gather").plan->context.gather);
  CHECK(levels("cp_comm_type: a2a").plan->context.heads == 2);
  CHECK(only_problem(levels("cp_comm_type: a2a+p2p")) ==
        "missing-key model_parallel.hierarchical_context_parallel_sizes");
  CHECK(only_problem(levels("cp_comm_type: a2a+p2p, hierarchical_context_parallel_sizes: [2, 2]")) ==
        "indivisible model_parallel.hierarchical_context_parallel_sizes");
  const auto two = levels("cp_comm_type: a2a+p2p, hierarchical_context_parallel_sizes: [2, 3]", "cp_size: 6");
  REQUIRE(two.plan);
  CHECK(two.plan->context.heads == 2);
  CHECK(two.plan->context.keys == 3);
  const auto heads = levels("cp_comm_type: a2a", "cp_size: 5");
  CHECK(only_problem(heads) == "indivisible model_parallel.cp_comm_type");
  CHECK(exit_code(heads.problems) == ExitCode::kRefused);
  // Nothing of it is refused where it has no effect (idle_keys_test.cpp).
  const std::string mamba =
      "model_type: nemotron_h, hidden_size: 64, intermediate_size: 96, num_attention_heads: 8, num_key_value_heads: 1, "
      "head_dim: 8, vocab_size: 99, layers_block_type: [mamba, mlp], mamba_num_heads: 6, mamba_head_dim: 8, "
      "ssm_state_size: 6, n_groups: 2";
  CHECK(planned("strategy: ddp, cp_size: 2", mamba, "model_parallel: {cp_comm_type: a2a}\n").plan);
  // 60 tokens cannot be divided into 8 chunks.
  CHECK(only_problem(levels("cp_comm_type: p2p", "cp_size: 4")) == "indivisible dataset.seq_length");
}

}  // namespace automodel::plan
