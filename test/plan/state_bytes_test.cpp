#include "plan/state_bytes.h"

#include <catch2/catch.hpp>
#include <fmt/format.h>

#include "arch/counts.h"
#include "planned.h"

namespace automodel::plan {
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

TrainingPlan plan_of(const std::string& model, const std::string& distributed, const std::string& stack,
                     const std::string& dtype = "bfloat16", int batch = 8) {
  return planned(
      fmt::format("device: cuda\nmodel:\n  torch_dtype: {}\n  config: {{{}}}\ndistributed: {{{}}}\n"
                  "dataset: {{_target_: mock, seq_length: 64}}\n"
                  "step_scheduler: {{global_batch_size: {}, local_batch_size: 1}}\nhardware: {{profile: h100{}}}\n",
                  dtype, model, distributed, batch, stack.empty() ? "" : ", stack: " + stack));
}
const RankMemory& rank(const TrainingPlan& plan) {
  return plan.estimate->memory.ranks[0];
}
double elements(const TrainingPlan& plan) {
  return static_cast<double>(arch::count_parameters(plan.model->spec).total());
}

}  // namespace

TEST_CASE("FSDP2 of PyTorch keeps state in the type of the recipe's weights", "[plan]") {
  const std::string eight = "strategy: fsdp2, dp_size: 8, mp_policy: {param_dtype: bfloat16, reduce_dtype: bfloat16}";
  const auto low = plan_of(kLlama, eight, "pytorch"), full = plan_of(kLlama, eight, "pytorch", "float32"),
             own = plan_of(kLlama, eight, "own");
  CHECK(rank(low).in(Phase::kSteady).optimizer == Approx(elements(low) / 8 * 2 * 2));
  CHECK(rank(full).in(Phase::kSteady).optimizer == Approx(elements(low) / 8 * 2 * 4));
  CHECK(rank(own).in(Phase::kSteady).optimizer == Approx(elements(low) / 8 * 2 * 4));
  CHECK(rank(low).in(Phase::kInitialization).weights == Approx(elements(low) / 8 * 2));
}

TEST_CASE("gradients are reduced unit by unit where one microbatch is a step", "[plan]") {
  const auto plan = [](const std::string& stack, int batch) {
    return plan_of(kLlama, "strategy: fsdp2, dp_size: 8", stack, "bfloat16", batch);
  };
  const auto gradients = [](const TrainingPlan& made) { return rank(made).in(Phase::kSteady).gradients; };
  const auto one = plan("pytorch", 8);
  // In the type of the reduction, float32.
  CHECK(gradients(one) < 0.6 * 4 * elements(one));
  CHECK(gradients(plan("pytorch", 16)) > 4 * elements(one));   // added up over two microbatches
  CHECK(gradients(plan("own", 8)) < 0.6 * 4 * elements(one));  // nothing is deferred where there is one
  CHECK(gradients(plan("own", 16)) > 4 * elements(one));
  const auto each =
      plan_of(kLlama, "strategy: fsdp2, dp_size: 8, defer_fsdp_grad_sync: false", "pytorch", "bfloat16", 16);
  CHECK(gradients(each) == gradients(one));
}

TEST_CASE("Megatron Core adds gradients up in the type that they are reduced in", "[plan]") {
  const std::string zero = "strategy: megatron_fsdp, zero_dp_strategy: 1, preserve_fp32_weights: true, dp_size: 8";
  const auto initial = [&](const std::string& more, const std::string& stack) {
    const auto plan = plan_of(kLlama, zero + more, stack);
    CHECK(rank(plan).in(Phase::kSteady).optimizer == Approx(elements(plan) / 8 * 2 * 4));
    CHECK(rank(plan).in(Phase::kInitialization).weights == Approx(elements(plan) * (2 + 4.0 / 8)));
    return rank(plan).in(Phase::kInitialization).gradients / elements(plan);
  };
  CHECK(initial("", "transformer_engine") == Approx(2));
  CHECK(initial("", "") == Approx(2));
  CHECK(initial(", grad_reduce_in_fp32: true", "transformer_engine") == Approx(4));
  CHECK(initial("", "own") == Approx(4));
}

TEST_CASE("an expert's rows are kept once as they arrived", "[plan]") {
  const auto kept = [](const std::string& stack) {
    const auto plan = plan_of(kExperts, "strategy: fsdp2, dp_size: 8, ep_size: 8", stack);
    return rank(plan).most_activations;
  };
  // Of a row there and back, and its result, in each of four layers for four experts of a token.
  CHECK(kept("own") - kept("pytorch") == Approx(4 * 64.0 * 4 * 3 * 1024 * 2));
  const auto full = [](const std::string& stack) {
    return rank(plan_of(kLlama, "strategy: fsdp2, dp_size: 8, activation_checkpointing: full", stack)).most_activations;
  };
  CHECK(full("own") > full("pytorch"));
}

TEST_CASE("parts of a layer that are computed again are not kept, and take time", "[plan]") {
  const auto plan = [](const std::string& modules, bool training = false) {
    const auto loaded = config::read_recipe(
        fmt::format("device: cuda\nmodel:\n  torch_dtype: bfloat16\n  config: {{{}}}\n"
                    "distributed: {{strategy: megatron_fsdp, dp_size: 8, ep_size: 8}}\n"
                    "model_parallel: {{recompute_modules: {}}}\ndataset: {{_target_: mock, seq_length: 64}}\n"
                    "step_scheduler: {{global_batch_size: 8, local_batch_size: 1}}\nhardware: {{profile: h100}}\n",
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
    // Of four layers, without what the backward pass of one needs.
    return rank(*all).most_activations - rank(*made).most_activations;
  };
  const double layer = 64 * 2, layers = 3;
  CHECK(less("[moe_act]") == Approx(layers * layer * 4 * 512));
  CHECK(less("[layernorm]") == Approx(layers * layer * 2 * 1024));
  CHECK(less("[core_attn]") == Approx(layers * layer * 1024));
  CHECK(less("[moe]") == Approx(layers * layer * 4 * (1024 + 3 * 512)));
  CHECK(plan("[moe]").plan->estimate->time.step > all->estimate->time.step);
  CHECK(to_text(plan("[moe]", true).problems).find("can be planned but not trained") != std::string::npos);
  CHECK(plan("[]", true).problems.empty());
}

TEST_CASE("whole parameters that nobody shares are there once", "[plan]") {
  const auto weights = [](const std::string& stack) {
    const auto plan = plan_of(kLlama, "strategy: fsdp2, dp_size: 1", stack, "bfloat16", 1);
    return rank(plan).in(Phase::kSteady).weights / elements(plan);
  };
  CHECK(weights("pytorch") == Approx(2));
  CHECK(weights("own") > 4);
}

}  // namespace automodel::plan
