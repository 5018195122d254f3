#include <catch2/catch.hpp>
#include <fmt/format.h>

#include "arch/counts.h"
#include "estimate/recompute_time.h"
#include "planned.h"
#include "report/plan_json.h"
#include "report/plan_text.h"

namespace automodel::estimate {
using namespace plan;
namespace {

using test::planned;

constexpr const char* kLlama =
    "model_type: llama, hidden_size: 64, intermediate_size: 160, num_hidden_layers: 2, num_attention_heads: 8,\n"
    "    num_key_value_heads: 4, head_dim: 8, vocab_size: 1000, max_position_embeddings: 128";
/// A dense layer and one with 8 experts, of which a token uses 2.
constexpr const char* kExperts =
    "model_type: qwen3_moe, hidden_size: 64, intermediate_size: 160, num_hidden_layers: 2, num_attention_heads: 4,\n"
    "    num_key_value_heads: 2, head_dim: 16, vocab_size: 1000, max_position_embeddings: 128, num_experts: 8,\n"
    "    num_experts_per_tok: 2, moe_intermediate_size: 32, mlp_only_layers: [0], tie_word_embeddings: false";
/// Latent attention with 4 heads of 16 + 8.
constexpr const char* kLatent =
    "model_type: deepseek_v3, hidden_size: 64, intermediate_size: 160, num_hidden_layers: 1,\n"
    "    num_attention_heads: 4, num_key_value_heads: 4, vocab_size: 1000, max_position_embeddings: 128,\n"
    "    q_lora_rank: 32, kv_lora_rank: 16, qk_nope_head_dim: 16, qk_rope_head_dim: 8, v_head_dim: 16,\n"
    "    n_routed_experts: 4, num_experts_per_tok: 2, moe_intermediate_size: 32, n_shared_experts: 1,\n"
    "    n_group: 1, topk_group: 1, first_k_dense_replace: 1";
constexpr double kExpertElements = 8 * 3 * 64 * 32;

/// In bfloat16, gradients reduced in float32; sequences of 128 tokens, one per microbatch.
std::string recipe(const std::string& model, const std::string& distributed, int global, int local,
                   const std::string& rest = "", const std::string& device = "cuda") {
  return fmt::format(
      "device: {}\nmodel:\n  torch_dtype: bfloat16\n  config: {{{}}}\ndistributed: {{{}}}\n"
      "dataset: {{_target_: mock, seq_length: 128}}\nstep_scheduler: {{global_batch_size: {}, local_batch_size: {}}}\n"
      "hardware: {{profile: {}, stack: own}}\n{}",
      device, model, distributed, global, local, device == "cuda" ? "h100" : "cpu", rest);
}

const AxisTraffic* find(const EstimatedPlan& plan, const std::string& axis, std::string_view what = "") {
  for (const auto& each : plan.estimate->time.traffic)
    if (mesh::name_of(each.axis) == axis && each.what.find(what) != std::string_view::npos) return &each;
  return nullptr;
}
AxisTraffic row(const EstimatedPlan& plan, const std::string& axis, std::string_view what = "") {
  const auto* found = find(plan, axis, what);
  CAPTURE(axis);
  REQUIRE(found != nullptr);
  return *found;
}

}  // namespace

TEST_CASE("expert weights are gathered, and their gradients reduced, over the experts' own shards", "[plan]") {
  const auto dense_of = [](const EstimatedPlan& plan) {
    return static_cast<double>(plan.pipeline->stages[0].part.parameters) - kExpertElements;
  };
  SECTION("no other rank has these experts") {
    const auto plan = planned(recipe(kExperts, "strategy: ddp, dp_size: 4, ep_size: 4", 4, 1, "", "cpu"));
    const double bytes = 4 * dense_of(plan);
    CHECK(row(plan, "dp_cp").bytes == Approx(2 * 0.75 * bytes));
    CHECK(find(plan, "ep_shard") == nullptr);
    const auto& link = plan.estimate->hardware.node;
    CHECK(plan.estimate->time.communication == Approx(2 * (0.75 * bytes / link.bandwidth + 3 * link.latency)));
  }
  SECTION("two ranks shard the same experts") {
    // Gathered in two bytes per element for both passes, reduced in four.
    const auto plan = planned(recipe(kExperts, "strategy: fsdp2, dp_size: 8, ep_size: 4", 8, 1));
    CHECK(row(plan, "dp_shard_cp").bytes == Approx(7.0 / 8 * (2 * 2 + 4) * dense_of(plan)));
    CHECK(row(plan, "ep_shard").bytes == Approx(1.0 / 2 * (2 * 2 + 4) * kExpertElements / 4));
    CHECK(row(plan, "ep_shard").size == 2);
  }
  SECTION("experts stay gathered from the forward to the backward pass") {
    const auto parts = [](const std::string& more) {
      return planned(recipe(kExperts, "strategy: fsdp2, dp_size: 8, ep_size: 4" + more, 8, 1, "", "cpu"));
    };
    const auto freed = parts(", moe: {reshard_after_forward: true}"), kept = parts(", moe: {}");
    CHECK(row(kept, "dp_shard_cp").bytes == row(freed, "dp_shard_cp").bytes);
    CHECK(row(freed, "ep_shard").bytes - row(kept, "ep_shard").bytes == Approx(1.0 / 2 * 2 * kExpertElements / 4));
    const auto& link = kept.estimate->hardware.node;
    CHECK(freed.estimate->time.communication - kept.estimate->time.communication ==
          Approx(1.0 / 2 * 2 * kExpertElements / 4 / link.bandwidth + link.latency));
    // All experts are gathered; of the dense units only the largest, what is in flight for it, and the next.
    const auto weights = [](const EstimatedPlan& plan) {
      return plan.estimate->memory.ranks[0].in(Phase::kSteady).weights;
    };
    CHECK(weights(kept) > weights(freed));
  }
  SECTION("sharded optimizer states") {
    const auto plan = planned(
        recipe(kExperts, "strategy: megatron_fsdp, zero_dp_strategy: 1, dp_size: 8, ep_size: 4", 8, 1, "", "cpu"));
    const double dense = dense_of(plan), expert = kExpertElements / 4;
    const auto& link = plan.estimate->hardware.node;
    const double once = 7.0 / 8 * dense + 1.0 / 2 * expert;  // elements
    CHECK(plan.estimate->time.communication ==
          Approx((size_of(plan.types.reduce) + 2) * once / link.bandwidth + 2 * (7 + 1) * link.latency).epsilon(1e-9));
    CHECK(row(plan, "ep_shard").bytes == Approx(1.0 / 2 * (size_of(plan.types.reduce) + 2) * expert));
  }
}

TEST_CASE("a rank that sends alone uses only its own network adapter", "[plan]") {
  Hardware hardware;
  hardware.node = {.bandwidth = 450e9, .latency = 1e-6};
  hardware.network = {.bandwidth = 50e9, .latency = 2e-6};
  hardware.per_node = 8;
  CHECK(group_link(hardware, 1, 16).link.bandwidth == 400e9);  // eight adapters per machine
  CHECK(neighbour_link(hardware, 1, 8).link == hardware.node);
  CHECK(neighbour_link(hardware, 1, 16).link == hardware.network);
  CHECK(exchange_link(hardware, 1, 8).link == hardware.node);
  // 8 of 15 parts leave the machine while 7 stay in it.
  CHECK(exchange_link(hardware, 1, 16).link.bandwidth == Approx(15.0 / 8 * 50e9));
  CHECK(exchange_link(hardware, 8, 4).link.bandwidth == Approx(50e9));

  const auto ep =
      row(planned(recipe(kExperts, "strategy: fsdp2, dp_size: 8, ep_size: 8", 8, 1), {.ranks_per_node = 4}), "ep");
  CHECK(ep.bytes == Approx(4 * 7.0 / 8 * 2 * 128 * 64 * 2));
  CHECK(ep.seconds == Approx(ep.bytes * 4 / 7 / 50e9));
  const auto cp =
      row(planned(recipe(kLlama, "strategy: fsdp2, dp_size: 1, cp_size: 4", 1, 1), {.ranks_per_node = 2}), "cp");
  CHECK(cp.seconds == Approx(cp.bytes / 50e9));
  const auto pp =
      row(planned(recipe(kLlama, "strategy: ddp, dp_size: 4, pp_size: 2, pipeline: {}", 8, 2), {.ranks_per_node = 4}),
          "pp");
  CHECK(pp.seconds == Approx(pp.bytes / 50e9));
}

TEST_CASE("with sequence parallelism stages send only a rank's share of the tokens", "[plan]") {
  const auto plan = planned(recipe(
      kLlama, "strategy: fsdp2, dp_size: 1, tp_size: 4, pp_size: 2, pipeline: {}, sequence_parallel: true", 2, 2));
  CHECK(row(plan, "pp").bytes == 2.0 * 128 / 4 * 64 * size_of(plan.types.message));
}

TEST_CASE("recomputation repeats the communication of what it recomputes", "[plan]") {
  const auto with = [](const char* model, const std::string& distributed, const std::string& recompute) {
    return planned(recipe(model, "strategy: fsdp2, " + distributed + ", activation_checkpointing: " + recompute, 4, 1));
  };
  SECTION("tensor parallelism") {
    const double unit = 3.0 / 4 * 128 * 64 * 2 * 2;  // two layers
    const std::string whole = "dp_size: 4, tp_size: 4", shares = whole + ", sequence_parallel: true";
    for (const auto& [distributed, recompute, units] :
         std::vector<std::tuple<std::string, std::string, int>>{{whole, "false", 8},
                                                                {whole, "selective", 10},
                                                                {whole, "full", 12},
                                                                {shares, "false", 10},
                                                                {shares, "selective", 12},
                                                                {shares, "full", 14}}) {
      CAPTURE(distributed, recompute);
      CHECK(row(with(kLlama, distributed, recompute), "tp").bytes == Approx(units * unit));
    }
    // 8 for the dense layer, 4 for attention in the MoE layer; each rank routes a part of the tokens.
    CHECK(row(with(kExperts, "dp_size: 4, tp_size: 2", "false"), "tp").bytes == Approx((8 + 4 + 2) * 128 * 64 * 2 / 2));
  }
  SECTION("experts") {
    const double once = 3.0 / 4 * 2 * 128 * 64 * 2;
    for (const auto& [recompute, times] :
         std::vector<std::pair<std::string, int>>{{"false", 4}, {"full", 6}, {"selective", 6}})
      CHECK(row(with(kExperts, "dp_size: 4, ep_size: 4", recompute), "ep").bytes == Approx(times * once));
  }
  SECTION("time of the backward pass") {
    // Recomputing a layer takes as long as its forward pass, communication included.
    const std::string four =
        "model_type: llama, hidden_size: 64, intermediate_size: 160, num_hidden_layers: 4,\n"
        "    num_attention_heads: 8, num_key_value_heads: 4, head_dim: 8, vocab_size: 1000,\n"
        "    max_position_embeddings: 128";
    const std::string parallel = "dp_size: 4, tp_size: 2, cp_size: 2";
    const auto stage = [&](const char* model, const std::string& recompute) {
      return with(model, parallel, recompute).estimate->time.stages[0];
    };
    const auto off = stage(kLlama, "false"), full = stage(kLlama, "full");
    CHECK(full.backward - off.backward == Approx(stage(four.c_str(), "false").forward - off.forward));
    CHECK(full.backward_input - off.backward_input == Approx(full.backward - off.backward));
  }
}

TEST_CASE("recomputed modules take the time of their FLOPs", "[plan]") {
  const Hardware hardware{.peak = 1e12, .forward_efficiency = 0.25, .attention_efficiency = 0.1};
  const auto seconds = [&](const char* model, const std::string& distributed, const std::string& modules, int layer) {
    const auto plan =
        planned(recipe(model, distributed, 4, 1, "model_parallel: {recompute_modules: [" + modules + "]}\n"));
    return modules_seconds(plan, hardware, layer);
  };
  // A microbatch of 128 tokens through gate, up and down; two FLOPs for each element of these.
  const double mlp = 128 * 2.0 * 3 * 64 * 160 / 0.25e12;
  CHECK(seconds(kLlama, "strategy: fsdp2", "mlp", 0) == Approx(mlp));
  CHECK(seconds(kLlama, "strategy: fsdp2, tp_size: 2", "mlp", 1) == Approx(mlp / 2));
  // Scores and weighted values of 64 numbers each, for half of the 128 keys.
  const double attention = 128 * 2.0 * (64 + 64) * 64 / 0.1e12;
  CHECK(seconds(kLlama, "strategy: fsdp2", "core_attn", 0) == Approx(attention));
  CHECK(seconds(kLlama, "strategy: fsdp2, tp_size: 2", "core_attn", 0) == Approx(attention / 2));
  CHECK(seconds(kLlama, "strategy: fsdp2", "\"core_attn\", mlp", 0) == Approx(mlp + attention));
  // Two of eight experts; layer 0 is dense.
  // Queries and keys from ranks of 32 and 16, values from the keys' rank.
  CHECK(seconds(kLatent, "strategy: fsdp2", "mla_up_proj", 0) ==
        Approx(128 * 2.0 * (4 * 24 * 32 + 4 * (16 + 16) * 16) / 0.25e12));
  CHECK(seconds(kExperts, "strategy: fsdp2", "moe", 1) == Approx(128 * 2.0 * 3 * 64 * 32 * 2 / 0.25e12));
}

TEST_CASE("selective recomputation repeats the MLP's share of a layer", "[plan]") {
  const auto spec = planned(recipe(kLlama, "strategy: fsdp2", 4, 1)).model;
  // Elements of a layer's matrices, and two products of 64 for each of 64 keys.
  const double mlp = 3 * 64 * 160, attention = 2 * 64 * 64 + 2 * 64 * 32, scores = 2 * 64 * 64;
  CHECK(feed_forward_share(spec->spec, spec->layout, 0, 128) == Approx(mlp / (mlp + attention + scores)));
}

TEST_CASE("copies of the state in memory add to a step what waits for them", "[plan]") {
  const auto time = [](const std::string& more) {
    return planned(recipe(kLlama, "strategy: fsdp2", 4, 1, "checkpoint: {" + more + "}\n")).estimate->time;
  };
  const auto without = time("enabled: true"), with = time("memory_every_steps: 1");
  CHECK(without.copies == 0);
  CHECK(with.copies > 0);
  CHECK(with.step == Approx(without.step + with.copies));
  CHECK(with.tokens_per_second * with.step == Approx(without.tokens_per_second * without.step));
}

TEST_CASE("context-parallel traffic matches each kind of exchange", "[plan]") {
  const auto sent = [](const char* model, const std::string& keys, const std::string& more = "") {
    return row(planned(recipe(model, "strategy: fsdp2, dp_size: 1, cp_size: 4" + more, 1, 1,
                              "model_parallel: {" + keys + "}\n")),
               "cp")
        .bytes;
  };
  // Of 32 tokens, two layers: queries and results 64 wide, keys and values 32.
  const double keys = 2 * 32 * 32 * 2, gradients = 2 * keys;
  const double ring = (3 + 3) * keys + 4 * gradients;
  CHECK(sent(kLlama, "cp_comm_type: p2p") == Approx(2 * ring));
  CHECK(sent(kLlama, "cp_comm_type: p2p", ", activation_checkpointing: full") == Approx(2 * (ring + 3 * keys)));
  CHECK(sent(kLlama, "cp_comm_type: p2p", ", activation_checkpointing: selective") == Approx(2 * ring));
  CHECK(sent(kLlama, "cp_comm_type: all_gather") == Approx(2 * ((3 + 3) * keys + 3 * gradients)));
  const double heads = 32 * (2 * 64 + 2 * 32) * 2;
  CHECK(sent(kLlama, "cp_comm_type: a2a") == Approx(2 * (2 * 3.0 / 4 * heads)));
  CHECK(sent(kLlama, "cp_comm_type: a2a+p2p, hierarchical_context_parallel_sizes: [2, 2]") ==
        Approx(2 * (2 * 1.0 / 2 * heads + (1 + 1) * keys + 2 * gradients)));
  // Latent attention: 4 heads of 16 + 8; the engine makes values as wide as keys.
  const double latent = 32 * (2 * 4 * 24) * 2;
  CHECK(sent(kLatent, "cp_comm_type: p2p") == Approx((3 + 3) * latent + 4 * 2 * latent));
}

TEST_CASE("context-parallel ranks exchange the inputs and outputs of recurrent states", "[plan]") {
  const auto sent = [](int cp, const std::string& model) {
    return row(planned(recipe("hidden_size: 64, intermediate_size: 96, num_hidden_layers: 1,\n"
                              "    num_attention_heads: 4, num_key_value_heads: 4, vocab_size: 1000,\n"
                              "    max_position_embeddings: 128, " +
                                  model,
                              fmt::format("strategy: fsdp2, dp_size: 1, cp_size: {}", cp), 1, 1)),
               "cp")
        .bytes;
  };
  const std::string delta =
      "model_type: qwen3_5_text, head_dim: 16, layer_types: [linear_attention],\n    linear_num_key_heads: 2, "
      "linear_num_value_heads: 4, linear_key_head_dim: 8, linear_value_head_dim: 6";
  // Of 64 tokens (of 32): queries and keys of 2 x 8, values of 4 x 6, two numbers per head; the state's outputs.
  CHECK(sent(2, delta) == Approx(2 * 1.0 / 2 * 64 * (2 * 16 + 24 + 2 * 4 + 24) * 2));
  CHECK(sent(4, delta) == Approx(2 * 3.0 / 4 * 32 * (2 * 2 * 16 + 24 + 2 * 4 + 24) * 2));  // two ranks per key head
  // Of 2 chunks per rank two tokens: gathered, and their gradients summed.
  CHECK(sent(2, "model_type: lfm2, layer_types: [conv]") == Approx((1 + 2) * 1.0 / 2 * 2 * 2 * 2 * 64 * 2));
  CHECK(sent(4, "model_type: lfm2, layer_types: [conv], conv_L_cache: 4") ==
        Approx((1 + 2) * 3.0 / 4 * 4 * 2 * 3 * 64 * 2));
}

TEST_CASE("the plan's line on context parallelism names what is exchanged, and so does its traffic", "[plan]") {
  const auto lines = [](const std::string& model) {
    const auto plan =
        planned(recipe("hidden_size: 64, intermediate_size: 96, num_attention_heads: 4,\n"
                       "    num_key_value_heads: 4, vocab_size: 1000, max_position_embeddings: 128, " +
                           model,
                       "strategy: fsdp2, dp_size: 1, cp_size: 2", 1, 1));
    const auto text = report::to_text(plan);
    const auto at = text.find("context   sequences over 2 ranks: ");
    REQUIRE(at != std::string::npos);
    return text.substr(at + 34, text.find('\n', at) - at - 34) + " | " + std::string(row(plan, "cp").what);
  };
  const std::string mamba =
      "model_type: nemotron_h, head_dim: 16,\n    mamba_num_heads: 4, mamba_head_dim: 8, ssm_state_size: 6, n_groups: "
      "2, layers_block_type: ";
  CHECK(lines(mamba + "[mamba, mlp]") ==
        "heads of recurrent layers exchanged | inputs and outputs of recurrent states");
  CHECK(lines(mamba + "[mamba, attention]") ==
        "ring of 2; heads of recurrent layers exchanged | keys and values; inputs and outputs of recurrent states");
  const std::string conv = "model_type: lfm2, num_hidden_layers: 2, layer_types: ";
  CHECK(lines(conv + "[conv, conv]") == "tokens before convolutions passed on | tokens before convolutions");
  CHECK(lines(conv + "[conv, full_attention]") ==
        "ring of 2; tokens before convolutions passed on | keys and values; tokens before convolutions");
  const std::string blocks =
      "model_type: minimax_m3_vl_text, head_dim: 16,\n    dense_intermediate_size: 96, num_hidden_layers: 2, "
      "num_local_experts: 4, "
      "num_experts_per_tok: 2,\n    shared_intermediate_size: 32, index_n_heads: 2, index_head_dim: 16, "
      "index_block_size: 4,\n    layer_types: [minimax_m3_sparse, ";
  CHECK(lines(blocks + "minimax_m3_sparse], index_topk_blocks: 2") ==
        "heads exchanged where an index chooses tokens | heads of queries, keys, values and results");
  CHECK(lines(blocks + "full_attention], index_topk_blocks: 2") ==
        "ring of 2; heads exchanged where an index chooses tokens | keys and values");
  CHECK(lines(blocks + "minimax_m3_sparse], index_topk_blocks: 32") == "ring of 2 | keys and values");
}

TEST_CASE("only layers whose attention sees what an index chooses exchange whole sequences of heads", "[plan]") {
  const auto sent = [](const std::string& kinds) {
    return row(planned(
                   recipe("model_type: minimax_m3_vl_text, hidden_size: 64, dense_intermediate_size: 96,\n"
                          "    num_hidden_layers: 2, num_attention_heads: 4, num_key_value_heads: 2, head_dim: 16,\n"
                          "    num_local_experts: 4, num_experts_per_tok: 2, intermediate_size: 32,\n"
                          "    shared_intermediate_size: 32, vocab_size: 1000, max_position_embeddings: 128,\n"
                          "    index_n_heads: 2, index_head_dim: 16, index_block_size: 4, index_topk_blocks: 2,\n"
                          "    layer_types: [" +
                              kinds + "]",
                          "strategy: fsdp2, dp_size: 1, cp_size: 2", 1, 1)),
               "cp")
        .bytes;
  };
  // Of 64 tokens on this rank and 64 on the other, in bfloat16: a ring of keys and values of 2 x 16, whose gradients
  // are in float32; or queries, keys, values and results, keys of the index, and two blocks, numbered in 16 bits, for
  // each of its two heads.
  const double keys = 64 * 2 * 32 * 2, ring = keys + keys + 2 * 2 * keys;
  const double heads = 2 * 1.0 / 2 * 64 * (64 + 32 + 32 + 64) * 2,
               gathered = 1.0 / 2 * (128 * 16 * 2 + 128 * 2 * 2 * 2);
  CHECK(sent("full_attention, full_attention") == Approx(2 * ring));
  CHECK(sent("minimax_m3_sparse, full_attention") == Approx(ring + heads + gathered));
}

TEST_CASE("a token's row is sent to every tensor-parallel shard of an expert", "[plan]") {
  for (const auto& [ep, tensor] : {std::pair{2, 2}, std::pair{1, 4}}) {
    const auto plan = planned(recipe(kExperts, fmt::format("strategy: fsdp2, dp_size: 4, ep_size: {}", ep), 4, 1,
                                     fmt::format("model_parallel: {{expert_tensor_parallel_size: {}}}\n", tensor)));
    const auto sent = row(plan, "ep");
    CHECK(sent.size == 4);
    CHECK(sent.bytes == Approx(4 * 3.0 / 4 * 2 * tensor * 128 * 64 * 2));
  }
}

TEST_CASE("a rank's FLOPs follow the tensor-parallel plan", "[plan]") {
  const auto flops = [](const std::string& plan) {
    return planned(recipe(kLlama, "strategy: fsdp2, tp_size: 2" + plan, 2, 1)).estimate->time.stages[0].flops;
  };
  // Attention 3 x 64 x 64, MLP 3 x 64 x 160, scores and values over 64 keys on average, a vocabulary of 1000.
  const double attention = 2 * 3 * 64 * 64 + 2 * 128 * 64, mlp = 2 * 3 * 64 * 160, head = 2 * 64 * 1000;
  CHECK(flops("") == 128 * (2 * (attention + mlp) + head) / 2);
  CHECK(flops(", tp_plan: {layers.*.mlp.gate_proj: colwise, layers.*.mlp.up_proj: colwise, "
              "layers.*.mlp.down_proj: rowwise}") == 128 * (2 * (attention + mlp / 2) + head));
}

TEST_CASE("a chunked loss computes the output head's gradients in the forward pass", "[plan]") {
  const auto stages = [](const std::string& loss) {
    return planned(recipe(kLlama, "strategy: ddp, dp_size: 1, pp_size: 2, pipeline: {}", 2, 2, loss))
        .estimate->time.stages;
  };
  const auto whole = stages(""), chunked = stages("loss_fn: {_target_: chunked_ce}\n");
  CHECK(chunked[0].forward == whole[0].forward);
  CHECK(chunked[0].backward == whole[0].backward);
  const double moved = whole[1].backward - chunked[1].backward;
  CHECK(moved > 0);
  CHECK(chunked[1].forward - whole[1].forward == Approx(moved));
  CHECK(chunked[1].backward_input < whole[1].backward_input);
  CHECK(chunked[1].backward_weight < whole[1].backward_weight);
}

TEST_CASE("the gradients of a tied embedding are summed between the first and the last stage", "[plan]") {
  const std::string tied = std::string(kLlama) + ", tie_word_embeddings: true";
  const std::string_view what = "tied";
  const auto plan = planned(recipe(tied, "strategy: ddp, dp_size: 1, pp_size: 2, pipeline: {}", 2, 2));
  const double bytes = 1000.0 * 64 * size_of(plan.types.gradient);
  CHECK(row(plan, "pp", what).bytes == bytes);
  const auto& link = plan.estimate->hardware.node;
  CHECK(plan.estimate->time.communication == Approx(bytes / link.bandwidth + 2 * link.latency));
  const auto sharded =
      planned(recipe(tied, "strategy: megatron_fsdp, zero_dp_strategy: 1, dp_size: 2, pp_size: 2, pipeline: {}", 4, 2));
  CHECK(row(sharded, "pp", what).bytes == 1000.0 * 64 / 2 * size_of(sharded.types.gradient));
  const auto apart = planned(recipe(kLlama, "strategy: ddp, dp_size: 1, pp_size: 2, pipeline: {}", 2, 2));
  CHECK(find(apart, "pp", what) == nullptr);
  CHECK(apart.estimate->time.communication == 0);
}

TEST_CASE("replicas sum gradients as often as shards reduce-scatter them", "[plan]") {
  const auto sent = [](bool defer) {
    const auto plan = planned(recipe(
        kLlama, fmt::format("strategy: fsdp2, dp_size: 4, dp_replicate_size: 2, defer_fsdp_grad_sync: {}", defer), 12,
        1));
    REQUIRE(plan.batch.microbatches * plan.batch.runs == 3);
    return std::pair(row(plan, "dp_replicate").bytes, static_cast<double>(plan.pipeline->stages[0].part.parameters));
  };
  const auto [once, elements] = sent(true);
  CHECK(once == Approx(4 * elements / 2));
  CHECK(sent(false).first == Approx(3 * once));
}

TEST_CASE("pipeline traffic is that of the rank that sends most", "[plan]") {
  const std::string eight =
      "model_type: llama, hidden_size: 64, intermediate_size: 160, num_hidden_layers: 8, num_attention_heads: 8,\n"
      "    num_key_value_heads: 4, head_dim: 8, vocab_size: 1000, max_position_embeddings: 128";
  const auto messages = [&](const std::string& distributed) {
    const auto plan = planned(recipe(eight, "strategy: ddp, dp_size: 1, " + distributed, 4, 4));
    return row(plan, "pp").bytes / (4.0 * 128 * 64 * size_of(plan.types.message));
  };
  CHECK(messages("pp_size: 2, pipeline: {pp_schedule: 1F1B}") == 1);
  CHECK(messages("pp_size: 4, pipeline: {pp_schedule: 1F1B}") == 2);  // inner ranks send forward and backward
  CHECK(messages("pp_size: 2, pipeline: {pp_schedule: Interleaved1F1B, layers_per_stage: 2}") == 3);
  CHECK(messages("pp_size: 2, pipeline: {pp_schedule: ZBVZeroBubble, layers_per_stage: 2}") == 2);
}

TEST_CASE("the parts of a step's time add up to the total, and the overhead is shown", "[plan]") {
  const auto plan = planned(recipe(kLlama, "strategy: fsdp2, dp_size: 4", 4, 1));
  const auto& time = plan.estimate->time;
  CHECK(time.overhead == 5e-3);
  CHECK(time.step == Approx(time.schedule + time.communication + time.optimizer + time.overhead));
  CHECK(report::to_text(plan, report::ActionFormat::kNone).find(", other 5.00 ms\n") != std::string::npos);
  CHECK(report::to_json(plan, report::ActionFormat::kNone).find("\"overhead\":") != std::string::npos);
}

}  // namespace automodel::estimate
