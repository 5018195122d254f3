#include "estimate/search.h"

#include <set>

#include <catch2/catch.hpp>

#include "config/differences.h"
#include "config/reference.h"
#include "estimate/coarse_cost.h"
#include "estimate/schedule_scale.h"
#include "schedule/pipeline_schedule.h"
#include "schedule/simulate.h"

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

/// What a search decides. Everything else stays as it is.
const std::set<std::string> kDecided = {
    "distributed.pp_size",
    "distributed.tp_size",
    "distributed.cp_size",
    "distributed.ep_size",
    "distributed.dp_size",
    "distributed.dp_replicate_size",
    "distributed.activation_checkpointing",
    "distributed.sequence_parallel",
    "distributed.defer_fsdp_grad_sync",
    "distributed.pipeline.pp_schedule",
    "distributed.pipeline.pp_schedule_csv",
    "distributed.pipeline.pp_microbatch_size",
    "distributed.pipeline.layers_per_stage",
    "distributed.pipeline.module_fqns_per_model_part",
    "distributed.pipeline.pipeline_model_parallel_layout",
    "model_parallel.pipeline_model_parallel_size",
    "model_parallel.tensor_model_parallel_size",
    "model_parallel.context_parallel_size",
    "model_parallel.expert_model_parallel_size",
    "model_parallel.expert_tensor_parallel_size",
    "model_parallel.virtual_pipeline_model_parallel_size",
    "model_parallel.sequence_parallel",
    "step_scheduler.local_batch_size",
};

/// Keys that differ in the recipe that --apply writes for the best candidate; "none" if the search finds nothing.
std::vector<std::string> changed_by_search(const config::LoadedRecipe& loaded) {
  const auto result = search_plans(loaded, {.world_size = 4, .show = 1, .plans = 1, .patience = 0});
  if (result.best.empty()) return {"none"};
  const auto again = config::read_recipe(apply_candidate(loaded, result.best[0]), "best.yaml", {}, {});
  INFO(to_text(again.problems));
  CHECK(again.problems.empty());
  std::vector<std::string> out;
  for (const auto& each : config::differences(loaded.recipe, again.recipe)) out.push_back(each.key);
  return out;
}

}  // namespace

TEST_CASE("a search leaves every key of a recipe unchanged that it does not decide", "[plan]") {
  const std::string model =
      "model: {config: {hidden_size: 64, intermediate_size: 128, num_hidden_layers: 8, num_attention_heads: 8, "
      "num_key_value_heads: 8, vocab_size: 256, max_position_embeddings: 128, ";
  const std::string dense = model + "model_type: llama}}\n";
  const std::string experts = model + "model_type: mixtral, num_local_experts: 4, num_experts_per_tok: 2}}\n";
  const std::string rest =
      "device: cuda\nhardware: {profile: h100}\ndataset: {_target_: mock, vocab_size: 256, seq_length: 64}\n"
      "step_scheduler: {global_batch_size: 32, local_batch_size: 8, max_steps: 20}\n";
  const std::vector<std::string> bases = {
      dense + rest + "distributed: {pp_size: 2, pipeline: {}}\npeft: {dim: 4}\nlr_scheduler: {}\n",
      dense + rest + "distributed: {strategy: megatron_fsdp}\nneftune: {}\nfp8: {enabled: true}\ngeneration: {}\n",
      dense + rest + "distributed: {strategy: ddp}\nfreeze_config: {}\noptimizer: {_target_: sgd}\n",
      experts + rest + "distributed: {ep_size: 2, moe: {}, mp_policy: {}}\n",
  };
  std::map<std::string, std::vector<std::string>> words;
  for (auto& each : config::recipe_values()) words[each.key] = std::move(each.values);
  int kept = 0;
  for (const auto& base : bases) {
    const auto plain = config::read_recipe(base, "recipe.yaml", {}, {});
    INFO(base << to_text(plain.problems));
    REQUIRE(plain.problems.empty());
    for (const auto& key : config::recipe_keys()) {
      if (key.find("NAME") != std::string::npos || key.starts_with("dataset") || key.starts_with("validation_d"))
        continue;
      auto values = words[key];
      for (const char* each : {"7", "0.25", "[q_proj]", "a word"}) values.emplace_back(each);
      for (const auto& value : values) {
        const std::vector<config::Override> override = {{key, value, key + "=" + value}};
        const auto loaded = config::read_recipe(base, "recipe.yaml", override, {});
        if (!loaded.problems.empty() || config::differences(plain.recipe, loaded.recipe).empty()) continue;
        const auto changed = changed_by_search(loaded);
        if (changed == std::vector<std::string>{"none"}) continue;
        ++kept;
        for (const auto& each : changed) {
          INFO(key << " = " << value << ", changed " << each);
          // Megatron Core's pipeline size implies the section, which is not written down.
          const bool implied = key == "model_parallel.pipeline_model_parallel_size" && each == "distributed.pipeline";
          CHECK((implied || kDecided.contains(each)));
        }
        break;
      }
    }
  }
  CHECK(kept > 400);
}

TEST_CASE("sizes given by Megatron Core's names are searched, and written back consistently", "[plan]") {
  const auto loaded = llama(
      "hardware: {profile: h100, memory: 60GiB}\n"
      "distributed: {strategy: megatron_fsdp, pipeline: {pp_schedule: Interleaved1F1B, dtype: float32, "
      "scale_grads_in_schedule: true, pp_seq_len: 8192}}\n"
      "model_parallel: {tensor_model_parallel_size: 2, pipeline_model_parallel_size: 2, "
      "virtual_pipeline_model_parallel_size: 2}\n");
  const auto result = search_plans(loaded, {.world_size = 16, .show = 200, .plans = 200, .patience = 60});
  REQUIRE(result.problems.empty());
  std::set<int> pipelines, tensors;
  for (const auto& each : result.best) {
    const auto text = apply_candidate(loaded, each);
    const auto again = config::read_recipe(text, "best.yaml", {}, {});
    INFO(text << to_text(again.problems));
    REQUIRE(again.problems.empty());
    CHECK(again.recipe.distributed->pipeline->scale_grads_in_schedule());
    CHECK(again.recipe.distributed->pipeline->pp_seq_len() == 8192);
    const auto plan = make_plan(again, {.world_size = 16});
    REQUIRE(plan.plan);
    CHECK(plan.plan->mesh.sizes() == each.sizes);
    CHECK(plan.plan->estimate->time.step == Approx(each.step));
    pipelines.insert(each.sizes.pp);
    tensors.insert(each.sizes.tp);
  }
  CHECK(pipelines.size() > 1);
  CHECK(tensors.size() > 1);
}

TEST_CASE("a search returns valid plans that fit in memory, fastest first", "[plan]") {
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

TEST_CASE("a search tries every schedule of the table, except those whose row says why not", "[plan]") {
  auto text = llama("hardware: {profile: h100}\n").text;
  text.replace(text.find("global_batch_size: 64"), 21, "global_batch_size: 256");
  const auto recipe = config::read_recipe(text, "recipe.yaml", {}, {});
  REQUIRE(recipe.problems.empty());
  const auto result = search_plans(recipe, {.world_size = 16, .show = 100000, .plans = 100000, .patience = 600});
  std::set<std::string> tried;
  for (const auto& each : result.best) tried.insert(each.schedule.substr(0, each.schedule.find(' ')));
  for (const auto& each : schedule::generators()) {
    CAPTURE(std::string(each.name));
    CHECK(tried.contains(std::string(each.name)) == each.not_searched.empty());
    CHECK((each.generate != nullptr || !each.not_searched.empty()));
  }
}

TEST_CASE("the coarse bubble and memory of a schedule, from few microbatches, are those of its simulation", "[plan]") {
  ScheduleScales scales;
  for (const auto& generator : schedule::generators()) {
    if (!generator.not_searched.empty()) continue;
    for (const int ranks : {2, 4, 8})
      for (const int stages_per_rank : {1, 2, 4})
        for (const int microbatches : {8, 16, 64}) {
          const schedule::Request request{
              .ranks = ranks, .stages_per_rank = stages_per_rank, .microbatches = microbatches};
          if (!schedule::check_request(generator, request).empty()) continue;
          const auto made = schedule::make_schedule(generator, request);
          REQUIRE(made.ok());
          const auto timeline =
              schedule::simulate(made.training, made.placement, made.shape, schedule::unit_costs(request.stages()));
          int kept = 0;
          for (const auto& rank : timeline.ranks) kept = std::max(kept, rank.peak_in_flight);
          const auto coarse = scales.of(generator, request);
          INFO(generator.name << " ranks " << ranks << " x" << stages_per_rank << " microbatches " << microbatches);
          CHECK(coarse.bubble == Approx(timeline.bubble_fraction).margin(0.03));
          CHECK(coarse.in_flight == Approx(kept).epsilon(0.1));
        }
  }
}

TEST_CASE("the coarse cost of an optimizer step and of kept experts is that of their bytes", "[plan]") {
  const auto loaded = config::read_recipe(
      "model:\n  config: {model_type: mixtral, hidden_size: 64, intermediate_size: 32, num_hidden_layers: 8,\n"
      "    num_attention_heads: 4, num_key_value_heads: 2, vocab_size: 1000, max_position_embeddings: 128,\n"
      "    num_local_experts: 8, num_experts_per_tok: 2, sliding_window: null}\ndistributed: {strategy: fsdp2}\n"
      "dataset: {_target_: mock, seq_length: 128}\nstep_scheduler: {global_batch_size: 1, local_batch_size: 1}\n",
      "recipe.yaml", {}, {});
  REQUIRE(to_text(loaded.problems) == "");
  const auto plan = make_plan(loaded, {}).plan;
  REQUIRE(plan);
  CoarseRequest request{.spec = &plan->model->spec, .layout = &plan->model->layout, .sequence = 128};
  request.bytes = {.values = 2, .master = 4, .moment = 4, .gradient = 4, .reduced = 4};
  request.hardware = {.peak = 1e12, .memory_bandwidth = 1e9, .moved = 0};
  // Queries, output, keys and values, two norms, router; eight experts; embedding and head.
  const double experts = 8 * 3.0 * 64 * 32, layer = 2 * 64 * 64 + 2 * 64 * 32 + 2 * 64 + 8 * 64;
  const double elements = 8 * (layer + experts) + 2.0 * 1000 * 64;
  const auto slow = coarse_cost(request);
  request.hardware.memory_bandwidth = 2e9;
  const auto fast = coarse_cost(request);
  // The update reads and writes gradients, and weights and two moments, once each.
  CHECK(slow.step - fast.step == Approx(elements * (2 * 4 + 6 * 4) / 2e9));
  CHECK(slow.memory == fast.memory);
  // Of parameters that are freed after use three layers are whole at a time; kept experts are all whole instead.
  request.sharding.optimizer = request.sharding.gradients = request.sharding.parameters = true;
  request.sharding.reshard_after_forward = true;
  const double freed = coarse_cost(request).memory;
  request.sharding.keep_experts = true;
  CHECK(coarse_cost(request).memory - freed == Approx(8 * experts * (1 - 3.0 / 8) * 2));
}

TEST_CASE("a search that finds nothing that fits reports what would nearly fit", "[plan]") {
  const auto result = search_plans(llama("hardware: {profile: h100, memory: 2GiB}\n"), {.world_size = 8});
  CHECK(result.best.empty());
  REQUIRE_FALSE(result.refused.empty());
  CHECK(result.refused[0].reason == "does not fit");
  CHECK(result.refused[0].example.find("nearest needs") != std::string::npos);
}

TEST_CASE("a search out of time continues until something fits, or reports what was not tried", "[plan]") {
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

TEST_CASE("a search says why the recipe's own plan is slower than the best", "[plan]") {
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
  const auto json = to_json(result);
  CHECK(json.find("\"why\":\"waits of the pipeline") != std::string::npos);
  std::size_t candidates = 0;
  for (auto at = json.find("\"sizes\":"); at != std::string::npos; at = json.find("\"sizes\":", at + 1)) ++candidates;
  CHECK(candidates == result.best.size() + 1);  // and the recipe's own
}

TEST_CASE("a recipe with expert tensor parallelism is searched without it", "[plan]") {
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
