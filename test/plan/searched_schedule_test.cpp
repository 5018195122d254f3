// `pp_schedule: searched`: never slower than a named schedule in the same memory, and within its limit.
#include <algorithm>
#include <fstream>
#include <iterator>
#include <limits>
#include <string>
#include <vector>

#include <catch2/catch.hpp>
#include <fmt/format.h>

#include "base/bytes.h"
#include "estimate/estimated_plan.h"
#include "golden_folder.h"
#include "schedule/generators.h"
#include "schedule/prove.h"

namespace automodel {
namespace {

const std::string kWide =  // a vocabulary that makes the last stage the heaviest
    "model: {config: {model_type: llama, hidden_size: 256, intermediate_size: 512, num_hidden_layers: 9, "
    "num_attention_heads: 4, vocab_size: 16384, max_position_embeddings: 512}}\n"
    "dataset: {_target_: mock, vocab_size: 16384, seq_length: 256}\n"
    "step_scheduler: {global_batch_size: 8, local_batch_size: 8}\n";

estimate::PlanResult plan_of(const std::string& text, const std::vector<std::string>& overrides = {}) {
  Diagnostics problems;
  const auto changes = config::parse_overrides(overrides, problems);
  REQUIRE(problems.empty());
  const auto loaded = config::read_recipe(text, "recipe.yaml", changes, {});
  INFO(to_text(loaded.problems));
  REQUIRE(loaded.problems.empty());
  return estimate::make_plan(loaded, {});
}

estimate::EstimatedPlan good_plan(const std::string& text, const std::vector<std::string>& overrides = {}) {
  auto result = plan_of(text, overrides);
  INFO(to_text(result.problems));
  REQUIRE(result.plan);
  REQUIRE(result.plan->estimate);
  return std::move(*result.plan);
}

std::string recipe_file(const std::string& name) {
  std::ifstream file(golden_folder() + "/../../recipes/" + name);
  REQUIRE(file);
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace

TEST_CASE("a searched schedule is never slower than a named one in the same memory", "[plan]") {
  const std::vector<std::pair<std::string, std::vector<std::string>>> recipes = {
      {recipe_file("pipeline.yaml"), {}},
      {recipe_file("lora.yaml"), {}},
      {recipe_file("quickstart.yaml"), {}},
      {kWide, {"--distributed.pp_size=2"}},
      {kWide, {"--distributed.pp_size=4", "--distributed.pipeline.pp_microbatch_size=2"}},
  };
  for (const auto& [text, overrides] : recipes) {
    const auto with = [&](std::vector<std::string> more) {
      more.insert(more.begin(), overrides.begin(), overrides.end());
      return more;
    };
    double fastest = std::numeric_limits<double>::infinity(), memory = 0;
    std::string name;
    for (const auto& row : schedule::generators())
      for (const int count : {1, 2, 4}) {
        if (row.generate == nullptr) continue;
        auto result =
            plan_of(text, with({fmt::format("--distributed.pipeline.pp_schedule={}", row.name),
                                fmt::format("--model_parallel.virtual_pipeline_model_parallel_size={}", count)}));
        if (!result.plan || result.plan->estimate->time.step >= fastest) continue;
        fastest = result.plan->estimate->time.step;
        memory = result.plan->estimate->memory.peak();
        name = fmt::format("{} with {} stages per rank", row.name, count);
      }
    const auto found =
        good_plan(text, with({"--distributed.pipeline.pp_schedule=searched",
                              fmt::format("--distributed.pipeline.search.memory_limit={:.0f}", memory + 1)}));
    INFO(name << ": " << fastest << " s, " << memory << " bytes; searched: " << found.estimate->time.step << " s");
    CHECK(found.estimate->time.step <= fastest * (1 + 1e-9));
    CHECK(found.estimate->memory.peak() <= memory + 1);
    CHECK(schedule::prove(found.pipeline->schedule.training, found.pipeline->schedule.placement,
                          found.pipeline->schedule.shape, schedule::Origin("test"))
              .ok());
  }
}

TEST_CASE("a search finds the same schedule again, faster where stages differ", "[plan]") {
  const std::vector<std::string> searched = {"--distributed.pp_size=4", "--distributed.pipeline.pp_schedule=searched"};
  const auto once = good_plan(kWide, searched), again = good_plan(kWide, searched);
  CHECK(once.pipeline->name == "searched");
  CHECK(once.pipeline->schedule.training == again.pipeline->schedule.training);
  CHECK(plan::fingerprint(once) == plan::fingerprint(again));
  const auto named = good_plan(kWide, {"--distributed.pp_size=4", "--distributed.pipeline.pp_schedule=1F1B"});
  CHECK(once.estimate->time.step < named.estimate->time.step);
}

TEST_CASE("a limit of memory is kept, and one that cannot be is refused with the least", "[plan]") {
  const auto limited = [](std::string_view limit) {
    return std::vector<std::string>{"--distributed.pp_size=4", "--distributed.pipeline.pp_schedule=searched",
                                    fmt::format("--distributed.pipeline.search.memory_limit={}", limit)};
  };
  const double most = good_plan(kWide, limited("1TiB")).estimate->memory.peak();
  const auto refused = plan_of(kWide, limited("1MiB"));
  REQUIRE_FALSE(refused.plan);
  REQUIRE(refused.problems.size() == 1);
  CHECK(refused.problems[0].id == "schedule-memory-limit");
  CHECK(refused.problems[0].key == "distributed.pipeline.search.memory_limit");
  const std::string help = refused.problems[0].help;
  const auto least = parse_bytes(help.substr(9, help.find(',') - 9));  // "at least 91.2 MiB, or ..."
  REQUIRE(least);
  const double limit = static_cast<double>(*least) * 1.005;  // it is printed with three digits
  REQUIRE(limit < most);
  CHECK(good_plan(kWide, limited(fmt::format("{:.0f}", limit))).estimate->memory.peak() <= limit);
  const auto wrong = plan_of(kWide, limited("much"));
  REQUIRE(wrong.problems.size() == 1);
  CHECK(wrong.problems[0].id == "bad-value");
}

TEST_CASE("a search keeps the stages that the recipe gives", "[plan]") {
  const auto stages = [](const std::string& key) {
    const auto plan = good_plan(kWide, {"--distributed.pp_size=2", "--distributed.pipeline.pp_schedule=searched", key});
    return plan.pipeline->schedule.shape.stages;
  };
  CHECK(stages("--model_parallel.virtual_pipeline_model_parallel_size=1") == 2);
  CHECK(stages("--model_parallel.virtual_pipeline_model_parallel_size=2") == 4);
  CHECK(stages("--model_parallel.virtual_pipeline_model_parallel_size=3") == 6);
  CHECK(stages("--distributed.pipeline.layers_per_stage=[4, 5]") == 2);
  CHECK(stages("--distributed.pipeline.layers_per_stage=[1, 2, 3, 3]") == 4);
  const auto odd = plan_of(kWide, {"--distributed.pp_size=2", "--distributed.pipeline.pp_schedule=searched",
                                   "--distributed.pipeline.layers_per_stage=[3, 3, 3]"});
  CHECK_FALSE(odd.plan);
  CHECK_FALSE(odd.problems.empty());
}

TEST_CASE("a plan says that its heaviest stage alone takes the step", "[plan]") {
  const std::vector<std::string> uneven = {"--distributed.pp_size=2", "--distributed.pipeline.pp_schedule=searched",
                                           "--distributed.pipeline.layers_per_stage=[1, 8]",
                                           "--step_scheduler.global_batch_size=64",
                                           "--step_scheduler.local_batch_size=64"};
  const auto plan = good_plan(kWide, uneven);
  CHECK_THAT(estimate::to_text(*plan.estimate, plan), Catch::Contains("bounded: rank 1 (stage 1) works"));
  const auto even = good_plan(kWide, {"--distributed.pp_size=3", "--distributed.pipeline.pp_schedule=searched",
                                      "--model.config.vocab_size=64", "--dataset.vocab_size=64"});
  CHECK_THAT(estimate::to_text(*even.estimate, even), !Catch::Contains("bounded"));
}

TEST_CASE("a search needs the model's sizes", "[plan]") {
  const auto result = plan_of(
      "model: {pretrained_model_name_or_path: nobody/nothing}\n"
      "dataset: {_target_: mock, vocab_size: 64, seq_length: 16}\n"
      "distributed: {pp_size: 2, pipeline: {pp_schedule: searched}}\n");
  REQUIRE_FALSE(result.plan);
  REQUIRE(std::any_of(result.problems.begin(), result.problems.end(), [](const Diagnostic& problem) {
    return problem.id == "missing-key" && problem.key == "distributed.pipeline.pp_schedule";
  }));
}

}  // namespace automodel
