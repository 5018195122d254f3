#include "estimate/search.h"

#include <catch2/catch.hpp>

namespace automodel::estimate {
using namespace plan;
namespace {

config::LoadedRecipe llama(const std::string& rest) {
  auto loaded = config::read_recipe(
      "model:\n  config: {model_type: llama, hidden_size: 4096, intermediate_size: 14336, num_hidden_layers: 32,\n"
      "    num_attention_heads: 32, num_key_value_heads: 8, vocab_size: 128256, max_position_embeddings: 131072}\n"
      "dataset: {_target_: mock, seq_length: 8192}\nstep_scheduler: {global_batch_size: 64}\n" +
          rest,
      "recipe.yaml", {}, {});
  INFO(to_text(loaded.problems));
  REQUIRE(loaded.problems.empty());
  return loaded;
}

}  // namespace

TEST_CASE("a search finds plans that fit and can be made, fastest first", "[plan]") {
  const auto loaded = llama("hardware: {profile: h100}\n");
  const auto result = search_plans(loaded, {.world_size = 16});
  REQUIRE(result.problems.empty());
  REQUIRE(result.best.size() >= 3);
  for (std::size_t i = 0; i < result.best.size(); ++i) {
    const auto& each = result.best[i];
    CHECK(each.sizes.world() == 16);
    CHECK(each.memory <= *result.hardware.memory);
    CHECK(each.fit != Fit::kDoesNotFit);
    if (i > 0) CHECK(result.best[i - 1].step <= each.step);
  }
  // The recipe that --apply writes is the plan that was found.
  const auto text = apply_candidate(loaded, result.best[0]);
  const auto again = config::read_recipe(text, "best.yaml", {}, {});
  INFO(text << to_text(again.problems));
  REQUIRE(again.problems.empty());
  const auto plan = make_plan(again, {.world_size = 16});
  REQUIRE(plan.plan);
  CHECK(plan.plan->estimate->time.step == Approx(result.best[0].step));
  CHECK(plan.plan->batch.global == 64);
}

TEST_CASE("a search says what would nearly fit where nothing does", "[plan]") {
  const auto result = search_plans(llama("hardware: {profile: h100, memory: 2GiB}\n"), {.world_size = 8});
  CHECK(result.best.empty());
  REQUIRE_FALSE(result.refused.empty());
  CHECK(result.refused[0].reason == "does not fit");
  CHECK(result.refused[0].example.find("nearest needs") != std::string::npos);
}

TEST_CASE("a search that has no time left goes on until something fits, or says what it left", "[plan]") {
  // The fastest by the coarse estimate do not quite fit.
  const auto loaded = llama("hardware: {profile: h100, memory: 30GiB}\n");
  const auto hurried = search_plans(loaded, {.world_size = 16, .patience = 0});
  REQUIRE(hurried.best.size() == 1);
  CHECK(hurried.planned <= 4);
  CHECK(hurried.untried > 0);
  const auto none = search_plans(llama("hardware: {profile: h100, memory: 2GiB}\n"), {.world_size = 8, .patience = 0});
  CHECK(none.best.empty());
  CHECK(to_text(none).find(none.untried == 0 ? "nothing fits" : "more were not tried") != std::string::npos);
}

TEST_CASE("a search says why the recipe's own way is slower", "[plan]") {
  const auto loaded = llama(
      "hardware: {profile: h100}\ndistributed: {strategy: megatron_fsdp, tp_size: 1, pp_size: 8, dp_size: 2, pipeline: "
      "{pp_schedule: GPipe, pp_microbatch_size: 4}}\n");
  auto text = loaded.text;
  text.replace(text.find("global_batch_size: 64"), 21, "global_batch_size: 64, local_batch_size: 32");
  const auto recipe = config::read_recipe(text, "recipe.yaml", {}, {});
  REQUIRE(recipe.problems.empty());
  const auto result = search_plans(recipe, {.world_size = 16, .patience = 30});
  REQUIRE(result.own);
  REQUIRE_FALSE(result.best.empty());
  CHECK(result.own->sizes.pp == 8);
  CHECK(result.own->step > 1.1 * result.best[0].step);
  const auto made = make_plan(recipe, {.world_size = 16});
  REQUIRE(made.plan);
  CHECK(result.own->step == Approx(made.plan->estimate->time.step));
  CHECK(to_text(result).find("slower than the best: waits of the pipeline") != std::string::npos);
  CHECK(to_json(result).find("\"why\":\"waits of the pipeline") != std::string::npos);
}

TEST_CASE("a recipe whose experts are divided over tensor-parallel ranks is searched without that", "[plan]") {
  const auto recipe = config::read_recipe(
      "model:\n  config: {model_type: mixtral, hidden_size: 1024, intermediate_size: 4096, num_hidden_layers: 8,\n"
      "    num_attention_heads: 16, num_key_value_heads: 8, vocab_size: 32000, num_local_experts: 8,\n"
      "    num_experts_per_tok: 2, max_position_embeddings: 4096}\n"
      "distributed: {strategy: megatron_fsdp, tp_size: 4, ep_size: 2, dp_size: 2}\n"
      "model_parallel: {sequence_parallel: true, expert_tensor_parallel_size: 4}\n"
      "dataset: {_target_: mock, seq_length: 1024}\nstep_scheduler: {global_batch_size: 64, local_batch_size: 1}\n"
      "hardware: {profile: h100}\n",
      "recipe.yaml", {}, {});
  INFO(to_text(recipe.problems));
  REQUIRE(recipe.problems.empty());
  const auto result = search_plans(recipe, {.world_size = 8, .patience = 30});
  INFO(to_text(result.problems));
  REQUIRE_FALSE(result.best.empty());
  REQUIRE(result.own);
  CHECK(result.own->sizes.tp == 4);
}

TEST_CASE("more memory never makes the best plan slower", "[plan]") {
  double last = 1e300;
  for (const char* memory : {"24GiB", "40GiB", "80GiB", "180GiB"}) {
    const auto result = search_plans(llama("hardware: {profile: h100, memory: " + std::string(memory) + "}\n"),
                                     {.world_size = 16, .patience = 30});
    if (result.best.empty()) continue;
    CHECK(result.best[0].step <= last * 1.0001);
    last = result.best[0].step;
  }
  CHECK(last < 1e300);
}

}  // namespace automodel::estimate
