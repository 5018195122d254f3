// Whether microbatches are captured as CUDA graphs, and what the plan says about it.
#include <string>

#include <catch2/catch.hpp>
#include <fmt/format.h>

#include "config/recipe.h"
#include "estimate/estimated_plan.h"
#include "report/plan_text.h"

namespace automodel {
namespace {

struct Asked {
  std::string model = "model_type: llama";
  std::string distributed = "strategy: ddp";
  std::string megatron = "enable_cuda_graph: true";
  std::string more = {};
  std::string device = "cuda";
  int ranks = 1;
};

estimate::EstimatedPlan planned(const Asked& asked) {
  const auto text = fmt::format(
      "device: {}\nhardware: {{profile: h100}}\n"
      "model: {{config: {{{}, hidden_size: 64, intermediate_size: 128, num_hidden_layers: 4, num_attention_heads: 4, "
      "num_key_value_heads: 2, vocab_size: 256, max_position_embeddings: 128}}}}\n"
      "dataset: {{_target_: mock, vocab_size: 256, seq_length: 64}}\n"
      "step_scheduler: {{global_batch_size: 32, local_batch_size: 4, max_steps: 20}}\n"
      "distributed: {{{}}}\nmodel_parallel: {{{}}}\n{}",
      asked.device, asked.model, asked.distributed, asked.megatron, asked.more);
  const auto loaded = config::read_recipe(text, "r.yaml", {}, [](const std::string&) { return std::nullopt; });
  for (const auto& problem : loaded.problems) UNSCOPED_INFO(problem.message);
  REQUIRE(loaded.problems.empty());
  auto result = estimate::make_plan(loaded, {.world_size = asked.ranks, .cuda_available = asked.device == "cuda"});
  for (const auto& problem : result.problems) UNSCOPED_INFO(problem.message);
  REQUIRE(result.plan);
  return *result.plan;
}

/// Why microbatches are not captured; empty if they are. Checks the plan, the warning at the key and the printed text.
std::string why_not(const Asked& asked) {
  const auto plan = planned(asked);
  const auto& why = plan.execution.capture.not_captured;
  CHECK(plan.execution.capture.captured == !why.has_value());
  int warned = 0;
  for (const auto& warning : plan.warnings)
    if (warning.key == "model_parallel.enable_cuda_graph") {
      CHECK(warning.id == "no-effect");
      CHECK(warning.where.line > 0);
      CHECK_FALSE(warning.help.empty());
      CHECK(why);
      CHECK(warning.message == "microbatches are not captured as CUDA graphs: " + why.value_or(""));
      ++warned;
    }
  CHECK(warned == (why ? 1 : 0));
  const auto text = report::to_text(plan);
  CHECK((text.find("graphs    none: " + why.value_or("?")) != std::string::npos) == why.has_value());
  CHECK((text.find("graphs    forward and backward") != std::string::npos) == plan.execution.capture.captured);
  return why.value_or("");
}

bool says(const std::string& why, const std::string& part) {
  UNSCOPED_INFO(why);
  return why.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("microbatches without communication are captured if the recipe asks for it", "[plan]") {
  const auto none = planned({.megatron = ""});
  CHECK_FALSE(none.execution.capture.captured);
  CHECK_FALSE(none.execution.capture.not_captured);
  CHECK(why_not({}).empty());
  CHECK(why_not({.distributed = "strategy: ddp, dp_size: 4", .ranks = 4}).empty());
  CHECK(why_not({.distributed = "strategy: megatron_fsdp, zero_dp_strategy: 1, dp_size: 4", .ranks = 4}).empty());
  CHECK(why_not({.distributed = "strategy: ddp, activation_checkpointing: full"}).empty());
  CHECK(why_not({.more = "peft: {dim: 4}\n"}).empty());
}

TEST_CASE("the plan says why microbatches are not captured", "[plan]") {
  CHECK(says(why_not({.device = "cpu"}), "device is the CPU"));
  CHECK(says(why_not({.distributed = "strategy: ddp, pp_size: 2, pipeline: {}", .ranks = 2}), "pipeline"));
  CHECK(says(why_not({.distributed = "strategy: ddp, tp_size: 2", .ranks = 2}), "communicate"));
  CHECK(says(why_not({.distributed = "strategy: ddp, cp_size: 2", .ranks = 2}), "communicate"));
  CHECK(says(why_not({.distributed = "strategy: fsdp2"}), "sharded"));
  CHECK(says(why_not({.distributed = "strategy: megatron_fsdp, zero_dp_strategy: 2, dp_size: 2", .ranks = 2}),
             "sharded"));
  CHECK(says(why_not({.model = "model_type: mixtral, num_local_experts: 4, num_experts_per_tok: 2"}), "per expert"));
  CHECK(says(why_not({.model = "model_type: lfm2, layer_types: [conv, full_attention, conv, full_attention], "
                               "conv_L_cache: 3, block_auto_adjust_ff_dim: false"}),
             "attention and feed-forward"));
  CHECK(says(why_not({.megatron = "enable_cuda_graph: true, cpu_offloading: true, cpu_offloading_num_layers: 2"}),
             "host memory"));
  CHECK(says(why_not({.more = "peft: {dim: 4, dropout: 0.1}\n"}), "dropout"));
  CHECK(says(why_not({.more = "fp8: {enabled: true}\n"}), "float8"));
  CHECK(says(why_not({.more = "packed_sequence: {packed_sequence_size: 64}\n"}), "packs"));
}

TEST_CASE("captured microbatches keep their memory between steps and reduce gradients after the last one", "[plan]") {
  using estimate::Phase;
  const Asked captured{.distributed = "strategy: ddp, dp_size: 2", .ranks = 2};
  auto usual = captured;
  usual.megatron = "";
  const auto with = planned(captured), without = planned(usual);
  CHECK_FALSE(with.sharding.overlap_reduction);
  CHECK(without.sharding.overlap_reduction);
  const auto &there = with.estimate->memory.ranks[0], &here = without.estimate->memory.ranks[0];
  for (const auto phase : {Phase::kEvaluation, Phase::kCheckpoint}) {
    CHECK(there.in(phase).activations - here.in(phase).activations == there.in(Phase::kSteady).activations);
    CHECK(there.in(phase).logits - here.in(phase).logits == there.in(Phase::kSteady).logits);
    CHECK(there.in(phase).gradients == here.in(phase).gradients);
  }
  CHECK(there.in(Phase::kSteady).total() >= here.in(Phase::kSteady).total());
  CHECK(there.in(Phase::kSteady).activations > 0);
}

}  // namespace automodel
