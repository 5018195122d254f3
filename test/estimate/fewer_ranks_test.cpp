#include "estimate/fewer_ranks.h"

#include <catch2/catch.hpp>

namespace automodel::estimate {
using namespace plan;
namespace {

const std::string kSmall =
    "model: {config: {model_type: llama, hidden_size: 256, intermediate_size: 512, num_hidden_layers: 8, "
    "num_attention_heads: 8, num_key_value_heads: 8, vocab_size: 1024, max_position_embeddings: 512}}\n"
    "dataset: {_target_: mock, vocab_size: 1024, seq_length: 512}\n"
    "step_scheduler: {global_batch_size: 64, local_batch_size: 4}\n"
    "device: cuda\n"
    "hardware: {profile: h100}\n";

struct Whole {
  config::LoadedRecipe loaded = {};
  std::optional<EstimatedPlan> plan = {};
};

Whole whole_of(const std::string& text, int ranks) {
  Whole out{config::read_recipe(text, "r.yaml", {}, [](const std::string&) { return std::nullopt; })};
  auto result = make_plan(out.loaded, {.world_size = ranks});
  REQUIRE(to_text(result.problems) == "");
  out.plan = std::move(result.plan);
  return out;
}

TEST_CASE("with fewer ranks the data-parallel size shrinks first, and the global batch stays") {
  const auto whole = whole_of(kSmall + "distributed: {tp_size: 2}\n", 16);
  const auto smaller = plan_for_fewer(whole.loaded, *whole.plan, {.most = 14});
  REQUIRE(smaller);
  // dp 7, 6 and 5 do not divide 16 local batches of four sequences.
  CHECK(smaller->words == std::vector<std::string>{"distributed.dp_size=4"});
  CHECK(smaller->same_axes);
  CHECK(smaller->plan.mesh.world_size() == 8);
  CHECK(smaller->plan.mesh.size({mesh::Axis::kTp}) == 2);
  CHECK(smaller->plan.batch.global == 64);
  CHECK(smaller->plan.batch.runs == 4);
  const auto least = plan_for_fewer(whole.loaded, *whole.plan, {.most = 14, .least = 8});
  REQUIRE(least);
  CHECK(least->words == smaller->words);
  const auto more = plan_for_fewer(whole.loaded, *whole.plan, {.most = 14, .least = 9});
  CHECK((!more || more->plan.mesh.world_size() >= 9));
}

TEST_CASE("if the recipe's axes need more ranks than are left, another mesh that fits is found") {
  const auto whole = whole_of(kSmall + "distributed: {tp_size: 4, cp_size: 4}\n", 16);
  const auto smaller = plan_for_fewer(whole.loaded, *whole.plan, {.most = 8});
  REQUIRE(smaller);
  CHECK_FALSE(smaller->same_axes);
  CHECK(smaller->plan.mesh.world_size() <= 8);
  CHECK(smaller->plan.batch.global == 64);
  CHECK(smaller->plan.estimate->memory.fit != Fit::kDoesNotFit);
}

TEST_CASE("there is no plan for fewer ranks if nothing fits in memory") {
  auto text = kSmall;
  text.replace(text.find("profile: h100"), 13, "profile: h100, memory: 1MiB");
  const auto whole = whole_of(text, 8);
  CHECK_FALSE(plan_for_fewer(whole.loaded, *whole.plan, {.most = 4}));
  CHECK(plan_for_fewer(whole_of(kSmall, 8).loaded, *whole.plan, {.most = 4}));
  CHECK_FALSE(plan_for_fewer(whole_of(kSmall, 8).loaded, *whole.plan, {.most = 4, .least = 5}));
}

}  // namespace
}  // namespace automodel::estimate
