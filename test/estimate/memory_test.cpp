#include <catch2/catch.hpp>
#include <fmt/format.h>

#include "golden_file.h"
#include "plan/model_names.h"
#include "planned.h"
#include "report/plan_json.h"
#include "report/plan_text.h"

namespace automodel::estimate {
using namespace plan;
namespace {

using test::planned;

std::string tiny(const std::string& distributed, const std::string& rest = "") {
  return "device: cpu\nmodel:\n  config: {model_type: llama, hidden_size: 64, intermediate_size: 160, "
         "num_hidden_layers: 8,\n"
         "    num_attention_heads: 4, num_key_value_heads: 2, vocab_size: 1000, max_position_embeddings: 128}\n"
         "distributed: {" +
         distributed +
         "}\ndataset: {_target_: mock, seq_length: 32}\n"
         "step_scheduler: {global_batch_size: 16, local_batch_size: 8}\n" +
         rest;
}

/// A Megatron case as a recipe, if it can be expressed as one: dense, Llama-like, distributed optimizer.
std::optional<std::string> recipe_of(const nlohmann::json& input) {
  const auto& a = input["args"];
  const bool plain = a["num_experts"].is_null() && !a["add_bias_linear"].get<bool>() &&
                     !a["multi_latent_attention"].get<bool>() && a["use_distributed_optimizer"].get<bool>();
  if (!plain) return std::nullopt;
  const int pp = a["pipeline_model_parallel_size"], tp = a["tensor_model_parallel_size"];
  const int dp = a["data_parallel_size"], layers = a["num_layers"];
  const int chunks =
      a["virtual_pipeline_model_parallel_size"].is_null() ? 1 : a["virtual_pipeline_model_parallel_size"].get<int>();
  const int microbatches = 4 * pp;
  return fmt::format(
      "model:\n  torch_dtype: bfloat16\n"
      "  config: {{model_type: llama, hidden_size: {}, intermediate_size: {}, num_hidden_layers: {}, head_dim: {},\n"
      "    num_attention_heads: {}, num_key_value_heads: {}, vocab_size: {}, max_position_embeddings: 131072,\n"
      "    tie_word_embeddings: {}}}\n"
      "distributed:\n  strategy: megatron_fsdp\n  zero_dp_strategy: 1\n  preserve_fp32_weights: true\n"
      "  pp_size: {}\n  tp_size: {}\n  dp_size: {}\n"
      "  pipeline: {{pp_schedule: {}, layers_per_stage: {}}}\n"
      "dataset: {{_target_: mock, seq_length: {}}}\n"
      "step_scheduler: {{global_batch_size: {}, local_batch_size: {}}}\n",
      a["hidden_size"].get<int>(), a["ffn_hidden_size"].get<int>(), layers, a["kv_channels"].get<int>(),
      a["num_attention_heads"].get<int>(), a["num_query_groups"].get<int>(), a["padded_vocab_size"].get<int>(),
      !a["untie_embeddings_and_output_weights"].get<bool>(), pp, tp, dp, chunks > 1 ? "Interleaved1F1B" : "1F1B",
      layers / pp / chunks, a["seq_length"].get<int>(), microbatches * dp, microbatches);
}

}  // namespace

TEST_CASE("weight, gradient and optimizer memory match Megatron Core under the same assumptions", "[plan][golden]") {
  int compared = 0;
  for (const auto& row : golden::load("plan/megatron_memory.json")) {
    const auto text = recipe_of(row["input"]);
    if (!text) continue;
    CAPTURE(row["input"].dump());
    const auto plan = planned(*text);
    // Their most loaded stage is the one with the embedding. Moments and master weights are sharded, gradients are not.
    const auto& first = plan.estimate->memory.ranks[0].in(Phase::kInitialization);
    const double ours = first.weights + first.gradients + first.optimizer;
    const double theirs = row["output"]["weight_and_optimizer_bytes"];
    CHECK(ours == Approx(theirs).epsilon(2e-5));
    ++compared;
  }
  CHECK(compared == 7);
}

TEST_CASE("model FLOPs per token match Megatron Core", "[plan][golden]") {
  for (const auto& row : golden::load("plan/megatron_memory.json")) {
    const auto text = recipe_of(row["input"]);
    if (!text) continue;
    CAPTURE(row["input"].dump());
    const auto plan = planned(*text);
    const double token = plan.estimate->time.flops / static_cast<double>(plan.batch.tokens());
    CHECK(token == Approx(row["output"]["flops_per_token"].get<double>()).epsilon(1e-12));
  }
}

TEST_CASE("each ZeRO level divides the memory of what it shards", "[plan]") {
  const auto bytes = [](const std::string& strategy) {
    return planned(tiny(strategy + ", dp_size: 2")).estimate->memory.ranks[0];
  };
  const auto ddp = bytes("strategy: ddp"), one = bytes("strategy: megatron_fsdp, zero_dp_strategy: 1"),
             two = bytes("strategy: megatron_fsdp, zero_dp_strategy: 2"), three = bytes("strategy: megatron_fsdp");
  const double whole = 4.0 * static_cast<double>(ddp.parameters);
  CHECK(ddp.in(Phase::kInitialization).weights == Approx(whole));  // fp32: no separate master weights
  CHECK(ddp.in(Phase::kInitialization).gradients == Approx(whole));
  CHECK(ddp.in(Phase::kInitialization).optimizer == Approx(2 * whole));
  CHECK(one.in(Phase::kInitialization).optimizer == Approx(whole));
  CHECK(one.in(Phase::kInitialization).weights == Approx(1.5 * whole));
  CHECK(two.in(Phase::kInitialization).gradients == 0);
  CHECK(three.in(Phase::kInitialization).weights == Approx(0.5 * whole));
  CHECK(three.in(Phase::kSteady).weights < two.in(Phase::kSteady).weights);
}

TEST_CASE("a multimodal model's towers add memory to the first stage only", "[plan]") {
  const std::string text =
      "model_type: llama, hidden_size: 64, intermediate_size: 128, num_hidden_layers: 4, "
      "num_attention_heads: 8, vocab_size: 256, max_position_embeddings: 128";
  const std::string tower =
      "model_type: clip_vision_model, hidden_size: 32, intermediate_size: 64, "
      "num_hidden_layers: 3, patch_size: 4, image_size: 16";
  const auto plan_of = [](const std::string& config, const std::string& more = {}) {
    return planned("model: {config: {" + config + "}}\n" +
                   "dataset: {_target_: mock, vocab_size: 256, seq_length: 64}\n"
                   "step_scheduler: {global_batch_size: 8, local_batch_size: 8, max_steps: 20}\ndevice: cpu\n"
                   "distributed: {strategy: ddp, pp_size: 2, pipeline: {pp_microbatch_size: 2}" +
                   more + "}\n");
  };
  const auto alone = plan_of(text);
  const auto whole = plan_of("model_type: llava, text_config: {" + text + "}, vision_config: {" + tower + "}");
  const auto towers = towers_of(*whole.model);
  REQUIRE(towers.size() == 2);
  const auto elements = *towers[0].parameters + *towers[1].parameters;
  const auto& memory = whole.estimate->memory.ranks;
  CHECK(memory[0].parameters - alone.estimate->memory.ranks[0].parameters == elements);
  CHECK(memory[1].parameters == alone.estimate->memory.ranks[1].parameters);
  CHECK(memory[0].in(Phase::kSteady).activations > alone.estimate->memory.ranks[0].in(Phase::kSteady).activations);
  // Eight images per step: a forward pass and twice as many FLOPs backward.
  const double images = 3 * 8 * (towers[0].flops + towers[1].flops);
  CHECK(whole.estimate->time.flops - alone.estimate->time.flops == Approx(images));
  CHECK(whole.estimate->time.step > alone.estimate->time.step);
  const auto again = plan_of("model_type: llava, text_config: {" + text + "}, vision_config: {" + tower + "}",
                             ", activation_checkpointing: full");
  CHECK(again.estimate->memory.ranks[0].in(Phase::kSteady).activations < memory[0].in(Phase::kSteady).activations);
}

TEST_CASE("activation memory follows the number of microbatches in flight", "[plan]") {
  const std::string pipeline = "strategy: ddp, pp_size: 4, pipeline: {merge_accumulation: false, pp_schedule: ";
  const auto one = planned(tiny(pipeline + "1F1B}")), gpipe = planned(tiny(pipeline + "GPipe}"));
  const auto activations = [](const EstimatedPlan& plan, int rank) {
    return plan.estimate->memory.ranks[static_cast<std::size_t>(rank)].in(Phase::kSteady).activations;
  };
  // 1F1B: 4, 3, 2, 1 in flight; GPipe: all 8 on every rank. The working memory of one backward pass is added to that.
  const double layer = activations(one, 0) - activations(one, 1);
  CHECK(activations(one, 1) - activations(one, 2) == Approx(layer));
  CHECK(activations(gpipe, 0) - activations(one, 0) == Approx(4 * layer));
}

TEST_CASE("recomputation reduces activation memory and adds time but no model FLOPs", "[plan]") {
  const auto whole = planned(tiny("strategy: ddp")),
             again = planned(tiny("strategy: ddp, activation_checkpointing: full")),
             some = planned(tiny("strategy: ddp, activation_checkpointing: selective"));
  const auto of = [](const EstimatedPlan& plan) {
    return plan.estimate->memory.ranks[0].in(Phase::kSteady).activations;
  };
  CHECK(of(again) < of(some));
  CHECK(of(some) < of(whole));
  CHECK(again.estimate->time.step > whole.estimate->time.step);
  CHECK(again.estimate->time.flops == Approx(whole.estimate->time.flops));
}

TEST_CASE("nvFSDP's names of sharding levels become Megatron-FSDP's levels, shown in the plan", "[plan]") {
  const auto level = [](const std::string& name) {
    return planned(tiny("strategy: nvfsdp, dp_size: 2, data_parallel_sharding_strategy: " + name));
  };
  const std::vector<std::string> names = {"no_shard", "optim", "optim_grads", "optim_grads_params"};
  for (int i = 0; i < 4; ++i) {
    const auto plan = level(names[static_cast<std::size_t>(i)]);
    const auto same = planned(tiny(fmt::format("strategy: megatron_fsdp, dp_size: 2, zero_dp_strategy: {}", i)));
    CHECK(plan.zero_level == i);
    CHECK(fingerprint(plan) == fingerprint(same));
    CHECK(report::to_text(plan, report::ActionFormat::kNone)
              .find(fmt::format("(zero_dp_strategy {}, {})", i, names[static_cast<std::size_t>(i)])) !=
          std::string::npos);
    CHECK(report::to_json(plan, report::ActionFormat::kNone).find(fmt::format("\"zero_dp_strategy\":{}", i)) !=
          std::string::npos);
    CHECK(plan.warnings.empty());
  }
  for (const char* name : {"params", "grads_params"}) {
    const auto plan = level(name);
    CHECK(plan.zero_level == 3);
    REQUIRE(plan.warnings.size() == 1);
    CHECK(plan.warnings[0].id == "sharding-level");
    CHECK(plan.warnings[0].key == "distributed.zero_dp_strategy");
  }
  CHECK_FALSE(planned(tiny("strategy: fsdp2")).zero_level);
}

TEST_CASE("activations of offloaded layers are in host memory, and some return to the device", "[plan]") {
  const auto on_gpu = [](const std::string& megatron) {
    auto text = tiny("strategy: ddp", "hardware: {profile: h100}\nmodel_parallel: {" + megatron + "}\n");
    text.replace(0, std::string("device: cpu").size(), "device: cuda");
    return planned(text).estimate->memory.ranks[0].in(Phase::kFirstStep);  // later phases add copies for checkpoints
  };
  const auto whole = on_gpu(""), some = on_gpu("cpu_offloading: true, cpu_offloading_num_layers: 3"),
             most = on_gpu("cpu_offloading: true, cpu_offloading_num_layers: 7");
  CHECK(some.activations < whole.activations);
  CHECK(most.activations < some.activations);
  CHECK(some.host == Approx(whole.activations - some.activations));
  CHECK(most.host == Approx(some.host * 7 / 3));
  CHECK(most.activations > whole.activations - most.host);  // two layers are back while they are needed
  const auto cpu =
      planned(tiny("strategy: ddp", "model_parallel: {cpu_offloading: true, cpu_offloading_num_layers: 3}\n"));
  CHECK(cpu.estimate->memory.ranks[0].in(Phase::kSteady).host == 0);
  REQUIRE(cpu.warnings.size() == 1);
  CHECK(cpu.warnings[0].id == "no-effect");
}

TEST_CASE("one rank stores whole what several would share", "[plan]") {
  const auto shares = [](const std::string& distributed, int ranks, const std::string& rest = "") {
    auto text = tiny(distributed, "hardware: {profile: h100}\n" + rest);
    text.replace(0, std::string("device: cpu").size(), "device: cuda");
    return planned(text, {.world_size = ranks}).estimate->memory.ranks[0].in(Phase::kSteady);
  };
  const auto one = shares("strategy: fsdp2", 1), whole = shares("strategy: ddp", 1);
  CHECK(one.weights == whole.weights);
  CHECK(one.gradients == whole.gradients);
  CHECK(one.optimizer == whole.optimizer);
  CHECK(shares("strategy: fsdp2", 2).weights < one.weights);
  // Weights in host memory are copied for every use, by one rank too.
  CHECK(shares("strategy: fsdp2, offload_policy: {_target_: CPUOffloadPolicy}", 1).weights < one.weights);
}

TEST_CASE("buffers of NCCL for messages and all-to-alls are part of a plan for GPUs", "[plan]") {
  const auto buffers = [](const std::string& distributed, const std::string& rest = "") {
    auto text = tiny(distributed, "hardware: {profile: h100}\n" + rest);
    text.replace(0, std::string("device: cpu").size(), "device: cuda");
    return planned(text).estimate->memory.ranks[0].in(Phase::kSteady).framework;
  };
  const std::string pipeline = "strategy: ddp, pipeline: {pp_schedule: 1f1b}, pp_size: ",
                    mpi = "dist_env: {backend: mpi}\n";
  CHECK(buffers(pipeline + "4") - buffers(pipeline + "4", mpi) == Approx(2 * 8 * 9.4e6));  // two neighbours
  CHECK(buffers(pipeline + "2") - buffers(pipeline + "2", mpi) == Approx(8 * 9.4e6));
  CHECK(buffers("strategy: ddp, dp_size: 2") == buffers("strategy: ddp, dp_size: 2", mpi));
}

TEST_CASE("on a GPU the loss is computed in chunks of 2048 tokens", "[plan]") {
  const auto execution = [](const std::string& device, const std::string& loss) {
    auto text = tiny("strategy: ddp", "hardware: {profile: h100}\nloss_fn: {_target_: " + loss + "}\n");
    if (device == "cpu") text = tiny("strategy: ddp", "loss_fn: {_target_: " + loss + "}\n");
    text.replace(0, std::string("device: cpu").size(), "device: " + device);
    return planned(text).execution;
  };
  CHECK(execution("cuda", "fused_linear_ce").loss.loss_chunk == 2048);
  CHECK(execution("cuda", "fused_linear_ce").loss.rows(8192, 64, 1000) == 2048);
  CHECK(execution("cuda", "chunked_ce, chunk_len: 300").loss.loss_chunk == 300);
  CHECK(execution("cpu", "fused_linear_ce").loss.loss_chunk == 0);
}

TEST_CASE("buffers that checkpoints are written from stay allocated after the first save", "[plan]") {
  const auto steady = [](const std::string& more, std::string_view device) {
    auto text = tiny("strategy: ddp", more);
    text.replace(0, std::string("device: cpu").size(), device);
    return planned(text).estimate->memory.ranks[0].in(Phase::kSteady);
  };
  const std::string none = "checkpoint: {enabled: false}\n", waiting = "checkpoint: {enabled: true}\n",
                    background = "checkpoint: {enabled: true, is_async: true}\n", gpu = "hardware: {profile: h100}\n";
  const auto without = steady(none, "device: cpu"), with = steady(background, "device: cpu");
  CHECK(steady(waiting, "device: cpu").buffers == without.buffers);
  CHECK(with.buffers - without.buffers == Approx(with.weights + with.optimizer));  // float32: values and two moments
  CHECK(steady(none + gpu, "device: cuda").host == 0);
  CHECK(steady(waiting + gpu, "device: cuda").host > 0);  // checkpoints cannot be written from device memory
}

TEST_CASE("a plan fits, is tight or does not fit", "[plan]") {
  const auto fit = [](const std::string& memory) {
    return planned(tiny("strategy: ddp", "hardware: {memory: " + memory + "}\n")).estimate->memory.fit;
  };
  const double need = planned(tiny("strategy: ddp")).estimate->memory.ranks[0].most().total();
  CHECK(fit("4GiB") == Fit::kFits);
  CHECK(fit(fmt::format("{:.0f}", need * 1.05)) == Fit::kTight);
  CHECK(fit(fmt::format("{:.0f}", need * 0.95)) == Fit::kDoesNotFit);
}

TEST_CASE("the number of parameters on a rank follows the tensor-parallel plan", "[plan]") {
  const auto parameters = [](const std::string& text) { return planned(text).estimate->memory.ranks[0].parameters; };
  // A layer: attention 2 x 64 x 64 + 2 x 64 x 32, MLP 3 x 64 x 160, norms 2 x 64. Ends: 2 x 1000 x 64 and a norm of 64.
  const std::int64_t mlp = 30720, ends = 128000 / 4 + 64;
  // Two key-value heads for four ranks: pairs of ranks have the same head.
  CHECK(parameters(tiny("strategy: ddp, tp_size: 4")) == 8 * (8192 / 4 + 4096 / 2 + mlp / 4 + 128) + ends);
  const auto mapped = [&](const std::string& layers) {
    return parameters(
        tiny("strategy: fsdp2, tp_size: 4, tp_plan: {model.embed_tokens: rowwise, lm_head: colwise, "
             "model.layers." +
             layers + ".mlp.gate_proj: colwise, model.layers." + layers + ".mlp.up_proj: colwise, model.layers." +
             layers + ".mlp.down_proj: rowwise}"));
  };
  CHECK(mapped("*") == 8 * (12288 + mlp / 4 + 128) + ends);
  CHECK(mapped("1") == 8 * (12288 + 128) + 7 * mlp + mlp / 4 + ends);
}

TEST_CASE("low-rank projections of latent attention are replicated on every tensor-parallel rank", "[plan]") {
  const auto plan = planned(
      "device: cpu\nmodel:\n  config: {model_type: deepseek_v3, hidden_size: 64, intermediate_size: 128, "
      "num_hidden_layers: 2,\n    num_attention_heads: 4, num_key_value_heads: 4, vocab_size: 1000, q_lora_rank: 16, "
      "kv_lora_rank: 8,\n    qk_nope_head_dim: 16, qk_rope_head_dim: 8, v_head_dim: 16, moe_intermediate_size: 32, "
      "n_routed_experts: 4,\n    num_experts_per_tok: 2, n_shared_experts: 1, n_group: 1, topk_group: 1, "
      "first_k_dense_replace: 2,\n    max_position_embeddings: 128}\n"
      "distributed: {strategy: ddp, tp_size: 2}\ndataset: {_target_: mock, seq_length: 32}\n"
      "step_scheduler: {global_batch_size: 16, local_batch_size: 8}\n");
  const std::int64_t low_rank = 64 * 16 + 64 * (8 + 8), norms = 2 * 64 + 16 + 8;
  const std::int64_t divided = 16 * 4 * 24 + 8 * 4 * 32 + 64 * 64 + 3 * 64 * 128;
  CHECK(plan.estimate->memory.ranks[0].parameters == 2 * (low_rank + norms + divided / 2) + 1000 * 64 + 64);
}

TEST_CASE("an adapter of shared key-value heads is sharded like those heads", "[plan]") {
  const auto plan = planned(tiny("strategy: ddp, tp_size: 4", "peft: {target_modules: ['*.k_proj'], dim: 8}\n"));
  const auto whole = planned(tiny("strategy: ddp, tp_size: 4"));
  // A [8, 64] is replicated; of B [32, 8] a rank has one head of two.
  CHECK(plan.estimate->memory.ranks[0].parameters - whole.estimate->memory.ranks[0].parameters == 8 * (512 + 256 / 2));
}

TEST_CASE("activations of unsharded modules are not divided by the tensor-parallel size", "[plan]") {
  arch::ModelSpec spec;
  spec.layers = 1;
  spec.hidden = 64, spec.heads = 4, spec.kv_heads = 2, spec.head_dim = 16, spec.ffn = 160, spec.vocab = 1000;
  ActivationRequest request{.tokens = 10, .sequence = 10, .bytes = 2, .tp = 4};
  // Residual stream 2 x 64, norms 2 x 64, queries 64, keys and values 2 x 32, attention 64, MLP 3 x 160; the statistics
  // of two norms and of the heads.
  CHECK(layer_activations(spec, 0, request).kept ==
        10 * ((256 + 64 / 4 + 64 / 2 + 64 / 4 + 480 / 4) * 2 + 4 * (2 + 1)));
  TensorShares shares{.kinds = {{.widths = {.up = 4, .down = 4}}}, .kind_of = {0}};
  request.shares = &shares;
  CHECK(layer_activations(spec, 0, request).kept == 10 * ((256 + 64 + 64 + 64 + 480 / 4) * 2 + 4 * (2 + 4)));
  CHECK(head_activations(spec, request, {.beside = 8}).logits == 10 * 1000 * 2);
  request.sequence_parallel = true;  // the norm before attention outputs the tokens of all ranks
  shares.kinds[0].widths.whole_attention = true;
  CHECK(layer_activations(spec, 0, request).kept ==
        10 * ((3 * 64 / 4 + 64 + 64 + 64 + 64 + 480 / 4) * 2 + 4 * (2 + 4)));

  const auto widths = [](const std::string& plan) {
    return planned(tiny("strategy: fsdp2, tp_size: 2, sequence_parallel: true, tp_plan: " + plan))
        .shares.layer(0)
        .widths;
  };
  const auto mlp = widths(
      "{layers.*.mlp.gate_proj: colwise, layers.*.mlp.up_proj: colwise, "
      "layers.*.mlp.down_proj: rowwise}");
  CHECK((mlp.heads == 1 && mlp.keys == 1 && mlp.up == 2 && mlp.down == 2));
  CHECK((mlp.whole_attention && !mlp.whole_mlp));
  const auto gathered = widths(
      "{layers.*.self_attn.q_proj: colwise_rep, layers.*.self_attn.k_proj: colwise_rep, "
      "layers.*.self_attn.v_proj: colwise_rep, layers.*.self_attn.o_proj: rowwise_rep}");
  CHECK((gathered.heads == 1 && gathered.keys == 1 && gathered.taken == 2 && gathered.up == 1));
  CHECK((!gathered.whole_attention && gathered.whole_mlp));
}

TEST_CASE("each tensor-parallel rank routes its share of the tokens to experts", "[plan]") {
  arch::ModelSpec spec;
  spec.layers = 1;
  spec.hidden = 64, spec.heads = 4, spec.kv_heads = 2, spec.head_dim = 16, spec.vocab = 1000;
  spec.moe = arch::MixtureOfExperts{.experts = 8, .top_k = 2, .ffn = 32};
  spec.moe_layers = {true};
  ActivationRequest request{.tokens = 10, .sequence = 10, .bytes = 2, .tp = 2};
  // Residual stream 2 x 64, norms 2 x 64, queries 64, keys and values 2 x 32, attention 64; an expert 2 x 64 and
  // 3 x 32.
  const int dense = 256 + (64 + 64 + 64) / 2, expert = 128 + 96, statistics = 4 * (2 + 4 / 2);
  CHECK(layer_activations(spec, 0, request).kept == 10 * ((dense + 2 * expert / 2) * 2 + statistics));
  request.sequence_parallel = true;
  CHECK(layer_activations(spec, 0, request).kept == 10 * ((dense - 128 + 2 * expert / 2) * 2 + statistics));
  // Two ranks that shard the same experts hold the rows of both, at half the width.
  request.expert_tensor = 2;
  CHECK(layer_activations(spec, 0, request).kept == 10 * ((dense - 128 + 2 * (expert + 64) / 2) * 2 + statistics));
  // The rows of both come from other ranks, and as many are returned; what is sent back is not kept.
  request.experts_apart = true;
  CHECK(layer_activations(spec, 0, request).kept == 10 * ((dense - 128 + 2 * (expert + 2 * 128) / 2) * 2 + statistics));
}

TEST_CASE("experts on other ranks add activation memory for the rows exchanged with them", "[plan]") {
  const auto activations = [](const std::string& distributed, const std::string& more = "") {
    auto text = tiny(distributed, more);
    const std::string dense = "model_type: llama, ";
    text.replace(text.find(dense), dense.size(),
                 "model_type: qwen3_moe, head_dim: 16, num_experts: 4, num_experts_per_tok: 2, "
                 "moe_intermediate_size: 32, ");
    return planned(text).estimate->memory.ranks[0].most_activations;
  };
  // Both have 8 layers, 8 x 32 tokens in float32, of which each rank of tp 2 routes half to two experts.
  const double rows = 8.0 * 8 * 32 * 4 * 2 / 2 * 64;
  const double own = activations("strategy: ddp, tp_size: 2");
  CHECK(activations("strategy: ddp, tp_size: 2, ep_size: 2") - own == rows);  // two, but not what is sent back
  CHECK(activations("strategy: ddp, tp_size: 2", "model_parallel: {expert_tensor_parallel_size: 2}\n") - own ==
        2 * 2 * rows);
}

TEST_CASE("validation needs memory for the widest block and for the output head, one after the other", "[plan]") {
  arch::ModelSpec spec;
  spec.layers = 1;
  spec.hidden = 64, spec.heads = 4, spec.kv_heads = 2, spec.head_dim = 16, spec.ffn = 160, spec.vocab = 1000;
  ActivationRequest request{.tokens = 10, .sequence = 10, .bytes = 2};
  // Two addends of the residual stream and their sum, its norm, both inputs and output of the gate, the block's output.
  CHECK(layer_activations(spec, 0, request).forward == 10 * 2 * (3 * 64 + 64 + 320 + 160 + 64));
  spec.ffn = 16;
  CHECK(layer_activations(spec, 0, request).forward == 10 * 2 * (3 * 64 + 64 + 128 + 64 + 64));
  spec.moe = arch::MixtureOfExperts{.experts = 8, .top_k = 2, .ffn = 160};
  spec.moe_layers = {true};
  CHECK(layer_activations(spec, 0, request).forward == 10 * 2 * (3 * 64 + 64 + 2 * (64 + 320 + 160 + 64)));
  const auto shares = planned(tiny("strategy: ddp")).estimate->memory.ranks[0].in(Phase::kEvaluation);
  CHECK(shares.logits == 8.0 * 32 * 1000 * 4);
  CHECK(shares.activations == 8.0 * 32 * 3 * 64 * 4);
  const auto split = planned(tiny("strategy: ddp, pp_size: 2, pipeline: {pp_schedule: 1F1B, pp_microbatch_size: 1}"));
  const auto first = split.estimate->memory.ranks[0].in(Phase::kEvaluation);  // a rank without head
  CHECK(first.logits == 0);
  CHECK(first.activations == 32.0 * (3 * 64 + 64 + 320 + 160 + 64) * 4);
}

TEST_CASE("with sequence parallelism messages between stages carry only a rank's own tokens", "[plan]") {
  const auto buffers = [](const std::string& more) {
    const auto plan = planned(tiny(
        "strategy: fsdp2, tp_size: 2, pp_size: 2, pipeline: {pp_schedule: 1F1B, merge_accumulation: false}" + more));
    const double messages = plan.pipeline->schedule.proof.ranks[0].receive_buffers + 1;
    const double ids = 2.0 * 3 * 8 * 8 * 32;
    return (plan.estimate->memory.ranks[0].in(Phase::kFirstStep).buffers - ids) / messages;
  };
  CHECK(buffers("") == 32 * 64 * 4);  // a sequence in float32
  CHECK(buffers(", sequence_parallel: true") == 32 / 2 * 64 * 4);
}

TEST_CASE("of many stages per rank only those needed next are gathered", "[plan]") {
  const auto weights = [](int layers, std::size_t rank) {
    return planned(
               tiny(fmt::format("strategy: fsdp2, dp_size: 2, pp_size: 2, pipeline: {{pp_schedule: Interleaved1F1B, "
                                "layers_per_stage: {}}}",
                                layers)))
        .estimate->memory.ranks[rank]
        .in(Phase::kFirstStep)
        .weights;
  };
  // In float32: half of all stages as master weights, and three of four stages gathered, one with an end of the model.
  const double layer = 43136, first = 64000, last = 64064;
  CHECK(weights(1, 0) == 4 * ((4 * layer + first) / 2 + 3 * layer + first));
  CHECK(weights(1, 1) == 4 * ((4 * layer + last) / 2 + 3 * layer + last));
  CHECK(weights(2, 0) == 4 * 1.5 * (4 * layer + first));  // both of two stages
}

}  // namespace automodel::estimate
