#include "estimate/state_bytes.h"

#include <catch2/catch.hpp>
#include <fmt/format.h>

#include "arch/counts.h"
#include "planned.h"

namespace automodel::estimate {
using namespace plan;
namespace {

using test::planned;

constexpr const char* kLlama =
    "model_type: llama, hidden_size: 1024, intermediate_size: 4096, num_hidden_layers: 16, num_attention_heads: 16,\n"
    "    num_key_value_heads: 16, vocab_size: 32000, max_position_embeddings: 4096, tie_word_embeddings: false";
constexpr const char* kExperts =
    "model_type: qwen3_moe, hidden_size: 1024, intermediate_size: 4096, num_hidden_layers: 4, num_attention_heads: "
    "16,\n"
    "    num_key_value_heads: 4, head_dim: 64, vocab_size: 32000, max_position_embeddings: 4096, num_experts: 16,\n"
    "    num_experts_per_tok: 4, moe_intermediate_size: 512, tie_word_embeddings: false";

EstimatedPlan plan_of(const std::string& model, const std::string& distributed, const std::string& stack,
                      const std::string& dtype = "bfloat16", int batch = 8) {
  return planned(
      fmt::format("device: cuda\nmodel:\n  torch_dtype: {}\n  config: {{{}}}\ndistributed: {{{}}}\n"
                  "dataset: {{_target_: mock, seq_length: 64}}\n"
                  "step_scheduler: {{global_batch_size: {}, local_batch_size: 1}}\nhardware: {{profile: h100{}}}\n",
                  dtype, model, distributed, batch, stack.empty() ? "" : ", stack: " + stack));
}
const RankMemory& rank(const EstimatedPlan& plan) {
  return plan.estimate->memory.ranks[0];
}
double elements(const EstimatedPlan& plan) {
  return static_cast<double>(arch::count_parameters(plan.model->spec).total());
}

}  // namespace

TEST_CASE("PyTorch's FSDP2 keeps optimizer state in the dtype of the recipe's weights", "[plan]") {
  const std::string eight = "strategy: fsdp2, dp_size: 8, mp_policy: {param_dtype: bfloat16, reduce_dtype: bfloat16}";
  const auto low = plan_of(kLlama, eight, "pytorch"), full = plan_of(kLlama, eight, "pytorch", "float32"),
             own = plan_of(kLlama, eight, "own");
  CHECK(rank(low).in(Phase::kSteady).optimizer == Approx(elements(low) / 8 * 2 * 2));
  CHECK(rank(full).in(Phase::kSteady).optimizer == Approx(elements(low) / 8 * 2 * 4));
  CHECK(rank(own).in(Phase::kSteady).optimizer == Approx(elements(low) / 8 * 2 * 4));
  CHECK(rank(low).in(Phase::kInitialization).weights == Approx(elements(low) / 8 * 2));
}

TEST_CASE("optimizer state bytes follow the optimizer and the dtypes in the recipe", "[plan]") {
  const auto of = [](const std::string& optimizer, const std::string& distributed = "strategy: fsdp2, dp_size: 8") {
    return planned(
        fmt::format("device: cuda\nmodel: {{torch_dtype: bfloat16, config: {{{}}}}}\n"
                    "distributed: {{{}}}\noptimizer: {{{}}}\ndataset: {{_target_: mock, seq_length: 64}}\n"
                    "step_scheduler: {{global_batch_size: 16, local_batch_size: 1}}\n"
                    "hardware: {{profile: h100, stack: own}}\n",
                    kLlama, distributed, optimizer));
  };
  const auto optimizer = [](const EstimatedPlan& plan) { return rank(plan).in(Phase::kSteady).optimizer; };
  const auto adamw = of("_target_: adamw");
  const double all = elements(adamw) / 8;
  CHECK(optimizer(adamw) == Approx(all * (4 + 4)));
  CHECK(optimizer(of("exp_avg_dtype: bfloat16")) == Approx(all * (2 + 4)));
  CHECK(optimizer(of("exp_avg_dtype: bfloat16, exp_avg_sq_dtype: bfloat16")) == Approx(all * (2 + 2)));
  CHECK(optimizer(of("amsgrad: true, exp_avg_sq_dtype: bfloat16")) == Approx(all * (4 + 2 + 2)));
  CHECK(optimizer(of("_target_: sgd, momentum: 0.9")) == Approx(all * 4));
  // 16 layers with four attention and three MLP matrices; AdamW updates embedding, head and norms.
  const double matrices = 16.0 * (4 * 1024 * 1024 + 3 * 1024 * 4096) / 8;
  const auto muon = of("_target_: muon");
  CHECK(optimizer(muon) == Approx(matrices * 4 + (all - matrices) * 8));
  CHECK(of("_target_: muon", "strategy: fsdp2, dp_size: 4, tp_size: 2").estimate->memory.ranks[0].most().optimizer ==
        Approx(optimizer(muon)).epsilon(0.01));  // norms are replicated on both tp ranks
  const auto gradients = [](const EstimatedPlan& plan) { return rank(plan).in(Phase::kSteady).gradients; };
  CHECK(gradients(of("main_grads_dtype: bfloat16")) == Approx(gradients(adamw) / 2));
}

TEST_CASE("Muon's estimated time includes its matmuls and sending the matrices between ranks", "[plan]") {
  const auto time = [](const std::string& optimizer, const std::string& distributed) {
    return planned(fmt::format("device: cuda\nmodel: {{torch_dtype: bfloat16, config: {{{}}}}}\n"
                               "distributed: {{{}}}\noptimizer: {{{}}}\ndataset: {{_target_: mock, seq_length: 64}}\n"
                               "step_scheduler: {{global_batch_size: 8, local_batch_size: 1}}\n"
                               "hardware: {{profile: h100, stack: own}}\n",
                               kLlama, distributed, optimizer))
        .estimate;
  };
  const auto one = time("_target_: muon", "dp_size: 1"), plain = time("_target_: adamw", "dp_size: 1");
  // Three matmuls per iteration: two with the smaller square matrix, and its square.
  const double flops = 5 * 16 * (4 * 2 * 1024.0 * 1024 * 3 * 1024 + 3 * 2 * 1024.0 * 1024 * (2 * 4096 + 1024));
  const double rate = one->hardware.peak * one->hardware.forward_efficiency;
  CHECK(one->time.optimizer - plain->time.optimizer == Approx(flops / rate));
  CHECK(time("_target_: muon, ns_steps: 10", "dp_size: 1")->time.optimizer - plain->time.optimizer ==
        Approx(2 * flops / rate));
  // Each matrix is updated on one of eight ranks, and sent there and back.
  const auto bytes = [&](const std::string& optimizer, const std::string& distributed, const std::string& axis) {
    double out = 0;
    const auto made = time(optimizer, distributed);
    for (const auto& each : made->time.traffic) out += mesh::name_of(each.axis) == axis ? each.bytes : 0;
    return out;
  };
  const double matrices = 16.0 * (4 * 1024 * 1024 + 3 * 1024 * 4096);
  const auto more = [&](const std::string& distributed, const std::string& axis) {
    return bytes("_target_: muon", distributed, axis) - bytes("_target_: adamw", distributed, axis);
  };
  CHECK(more("strategy: fsdp2, dp_size: 8", "dp_shard_cp") == Approx(2 * 2 * matrices / 8 * 7 / 8));
  CHECK(more("strategy: ddp, dp_size: 8", "dp_cp") == Approx(2 * matrices / 8 * 7));
  CHECK(more("strategy: fsdp2, dp_size: 4, tp_size: 2", "tp") == Approx(2 * 2 * (matrices / 2) / 4 / 2));
}

TEST_CASE("gradients are reduced unit by unit if a step has one microbatch", "[plan]") {
  const auto plan = [](const std::string& stack, int batch) {
    return plan_of(kLlama, "strategy: fsdp2, dp_size: 8", stack, "bfloat16", batch);
  };
  const auto gradients = [](const EstimatedPlan& made) { return rank(made).in(Phase::kSteady).gradients; };
  const auto one = plan("pytorch", 8);
  // In the type of the reduction, float32.
  CHECK(gradients(one) < 0.6 * 4 * elements(one));
  CHECK(gradients(plan("pytorch", 16)) > 4 * elements(one));   // accumulated over two microbatches
  CHECK(gradients(plan("own", 8)) < 0.6 * 4 * elements(one));  // with one microbatch nothing is deferred
  // Sums replace whole gradients once the activations of the backward pass are freed.
  CHECK(gradients(plan("own", 16)) >= 4 * elements(one));
  const auto each =
      plan_of(kLlama, "strategy: fsdp2, dp_size: 8, defer_fsdp_grad_sync: false", "pytorch", "bfloat16", 16);
  CHECK(gradients(each) == gradients(one));
}

TEST_CASE("Megatron Core accumulates gradients in the dtype that they are reduced in", "[plan]") {
  const std::string zero = "strategy: megatron_fsdp, zero_dp_strategy: 1, preserve_fp32_weights: true, dp_size: 8";
  const auto initial = [&](const std::string& more, const std::string& stack) {
    const auto plan = plan_of(kLlama, zero + more, stack);
    CHECK(rank(plan).in(Phase::kSteady).optimizer == Approx(elements(plan) / 8 * 2 * 4));
    CHECK(rank(plan).in(Phase::kInitialization).weights == Approx(elements(plan) * (2 + 4.0 / 8)));
    return rank(plan).in(Phase::kInitialization).gradients / elements(plan);
  };
  CHECK(initial("", "transformer_engine") == Approx(2));
  CHECK(initial("", "") == Approx(4));  // this program is what is estimated unless a stack is named
  CHECK(initial(", grad_reduce_in_fp32: true", "transformer_engine") == Approx(4));
  CHECK(initial(", grad_reduce_in_fp32: true", "pytorch") == Approx(2 + 4));  // DeepSpeed keeps both
  CHECK(initial("", "own") == Approx(4));
  // Without its distributed optimizer it has the same on every rank; PyTorch's DDP has no masters.
  const auto whole = plan_of(kLlama, "strategy: ddp, dp_size: 8", "transformer_engine");
  CHECK(rank(whole).in(Phase::kSteady).optimizer == Approx(elements(whole) * 2 * 4));
  CHECK(rank(whole).in(Phase::kInitialization).weights == Approx(elements(whole) * (2 + 4)));
  CHECK(rank(whole).in(Phase::kInitialization).gradients == Approx(elements(whole) * 4));
  const auto plain = plan_of(kLlama, "strategy: ddp, dp_size: 8", "pytorch");
  CHECK(rank(plain).in(Phase::kSteady).optimizer == Approx(elements(plain) * 2 * 2));
  CHECK(rank(plain).in(Phase::kInitialization).weights == Approx(elements(plain) * 2));
}

TEST_CASE("the PyTorch stack keeps an expert's input rows once, this program's engine more often", "[plan]") {
  const auto kept = [](const std::string& stack) {
    const auto plan = plan_of(kExperts, "strategy: fsdp2, dp_size: 8, ep_size: 8", stack);
    return rank(plan).most_activations;
  };
  // The row sent and the row returned, in each of four layers for the four experts of a token; less what the gradient
  // of the projections is wider than the experts', as it comes when the experts' rows are free.
  CHECK(kept("own") - kept("pytorch") == Approx((4 * 4 * 2 - 1) * 64.0 * 1024 * 2));
  const auto full = [](const std::string& stack) {
    return rank(plan_of(kLlama, "strategy: fsdp2, dp_size: 8, activation_checkpointing: full", stack)).most_activations;
  };
  CHECK(full("own") > full("pytorch"));
}

TEST_CASE("recomputed modules of a layer store no activations and take more time", "[plan]") {
  const auto plan = [](const std::string& modules, bool training = false) {
    const auto loaded = config::read_recipe(
        fmt::format("device: cuda\nmodel:\n  torch_dtype: bfloat16\n  config: {{{}}}\n"
                    "distributed: {{strategy: megatron_fsdp, dp_size: 8, ep_size: 8}}\n"
                    "model_parallel: {{recompute_modules: {}}}\ndataset: {{_target_: mock, seq_length: 64}}\n"
                    "step_scheduler: {{global_batch_size: 8, local_batch_size: 1}}\n"
                    "hardware: {{profile: h100, stack: transformer_engine}}\n",
                    kExperts, modules),
        "recipe.yaml", {}, {});
    REQUIRE(loaded.problems.empty());
    PlanRequest request;
    request.training = request.cuda_available = training;
    return make_plan(loaded, request);
  };
  const auto all = plan("[]").plan;
  const auto less = [&](const std::string& modules) {
    const auto made = plan(modules).plan;
    REQUIRE(made);
    CHECK(made->estimate->time.step >= all->estimate->time.step);
    // Of four layers, less what the backward pass of one needs.
    return rank(*all).most_activations - rank(*made).most_activations;
  };
  const double layer = 64 * 2, layers = 3;
  CHECK(less("[moe_act]") == Approx(layers * layer * 4 * 512));
  CHECK(less("[layernorm]") == Approx(layers * layer * 2 * 1024));
  CHECK(less("[core_attn]") == Approx(layers * layer * 1024));
  CHECK(less("[moe]") == Approx(layers * layer * 4 * (1024 + 3 * 512)));
  CHECK(plan("[moe]").plan->estimate->time.step > all->estimate->time.step);
  REQUIRE(plan("[moe]").plan->unsupported.size() == 1);
  CHECK(plan("[moe]").plan->unsupported[0].key == "model_parallel.recompute_modules");
  CHECK(to_text(plan("[moe]", true).problems).find("can be planned but not trained") != std::string::npos);
  CHECK(plan("[]", true).problems.empty());
}

TEST_CASE("the PyTorch stack stores unsharded parameters only once", "[plan]") {
  const auto weights = [](const std::string& stack) {
    const auto plan = plan_of(kLlama, "strategy: fsdp2, dp_size: 1", stack, "bfloat16", 1);
    return rank(plan).in(Phase::kSteady).weights / elements(plan);
  };
  CHECK(weights("pytorch") == Approx(2));
  CHECK(weights("own") > 4);
}

}  // namespace automodel::estimate
