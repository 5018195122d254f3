#include "plan/balanced_split.h"

#include <algorithm>
#include <numeric>
#include <random>

#include <catch2/catch.hpp>

#include "estimate/estimated_plan.h"
#include "planned.h"

namespace automodel::plan {
namespace {

using Counts = std::vector<int>;

Counts counts(const std::vector<LayerRange>& ranges) {
  Counts out;
  for (const auto& range : ranges) out.push_back(range.size());
  return out;
}

double largest(const Counts& split, const SplitCost& cost) {
  double out = 0;
  std::size_t next = 0;
  for (std::size_t s = 0; s < split.size(); ++s) {
    double stage = (s == 0 ? cost.first : 0) + (s + 1 == split.size() ? cost.last : 0);
    for (int i = 0; i < split[s]; ++i) stage += cost.layers[next++];
    out = std::max(out, stage);
  }
  return out;
}

/// Sum of the squares of the stages' costs: the smaller, the more even.
double unevenness(const Counts& split, const SplitCost& cost) {
  double out = 0;
  std::size_t next = 0;
  for (std::size_t s = 0; s < split.size(); ++s) {
    double stage = (s == 0 ? cost.first : 0) + (s + 1 == split.size() ? cost.last : 0);
    for (int i = 0; i < split[s]; ++i) stage += cost.layers[next++];
    out += stage * stage;
  }
  return out;
}

/// Every way to divide, one after another.
void each_split(int stages, int layers, Counts& so_far, const std::function<void(const Counts&)>& visit) {
  if (stages == 1) {
    so_far.push_back(layers);
    visit(so_far);
    so_far.pop_back();
    return;
  }
  for (int first = 1; first <= layers - stages + 1; ++first) {
    so_far.push_back(first);
    each_split(stages - 1, layers - first, so_far, visit);
    so_far.pop_back();
  }
}

estimate::EstimatedPlan planned(const std::string& distributed, const std::string& rest = "", int vocabulary = 128256) {
  return test::planned(
      "model:\n  config: {model_type: llama, hidden_size: 1024, intermediate_size: 2816, num_hidden_layers: 14,\n"
      "    num_attention_heads: 8, num_key_value_heads: 8, max_position_embeddings: 4096, vocab_size: " +
      std::to_string(vocabulary) + "}\ndistributed: {" + distributed +
      "}\ndataset: {_target_: mock, seq_length: 4096}\n"
      "step_scheduler: {global_batch_size: 32, local_batch_size: 8}\n" +
      rest);
}

Counts layers_of(const estimate::EstimatedPlan& plan) {
  Counts out;
  for (const auto& stage : plan.pipeline->stages) out.push_back(static_cast<int>(stage.part.layers.size()));
  return out;
}

}  // namespace

TEST_CASE("the balanced split minimizes the cost of the most expensive stage", "[plan]") {
  CHECK(counts(balanced_layers(4, {.layers = std::vector<double>(16, 1.0)})) == Counts{4, 4, 4, 4});
  // What does not divide goes to the end, where fewer microbatches are held.
  CHECK(counts(balanced_layers(4, {.layers = std::vector<double>(10, 1.0)})) == Counts{2, 2, 3, 3});
  // An expensive head leaves the last stage fewer layers.
  CHECK(counts(balanced_layers(3, {.layers = std::vector<double>(12, 1.0), .last = 3})) == Counts{5, 5, 2});
  CHECK(balanced_layers(3, {.layers = {1, 1}}).empty());
  CHECK(counts(balanced_layers(3, {.layers = std::vector<double>(9, 1.0)}, {2, 9, 9})) == Counts{2, 3, 4});
  CHECK(balanced_layers(3, {.layers = std::vector<double>(9, 1.0)}, {2, 2, 2}).empty());
  std::mt19937 random(7);
  const auto number = [&](int most) { return static_cast<double>(random() % static_cast<unsigned>(most)); };
  for (int round = 0; round < 200; ++round) {
    SplitCost cost{.first = number(6), .last = number(20)};
    const int layers = 2 + static_cast<int>(number(8)), stages = 1 + static_cast<int>(number(layers));
    for (int i = 0; i < layers; ++i) cost.layers.push_back(1 + number(9));
    const auto split = counts(balanced_layers(stages, cost));
    REQUIRE(static_cast<int>(split.size()) == stages);
    REQUIRE(std::accumulate(split.begin(), split.end(), 0) == layers);
    double best = 1e300;
    Counts so_far;
    each_split(stages, layers, so_far, [&](const Counts& each) { best = std::min(best, largest(each, cost)); });
    CHECK(largest(split, cost) == Approx(best));
    // Of the splits with that maximum, the most even one.
    double even = 1e300;
    so_far.clear();
    each_split(stages, layers, so_far, [&](const Counts& each) {
      if (largest(each, cost) <= best * (1 + 1e-9)) even = std::min(even, unevenness(each, cost));
    });
    CHECK(unevenness(split, cost) == Approx(even));
  }
}

TEST_CASE("layers_per_stage auto balances stages by estimated time, with fewer layers beside the head", "[plan]") {
  const std::string hardware = "hardware: {profile: h100}\n";
  const auto even = planned("strategy: ddp, pp_size: 4, pipeline: {pp_schedule: 1F1B}", hardware);
  const auto balanced =
      planned("strategy: ddp, pp_size: 4, pipeline: {pp_schedule: 1F1B, layers_per_stage: auto}", hardware);
  const auto heaviest = [](const estimate::EstimatedPlan& plan) {
    double out = 0;
    for (const auto& stage : plan.estimate->time.stages) out = std::max(out, stage.forward + stage.backward);
    return out;
  };
  CHECK(layers_of(even) == Counts{4, 4, 3, 3});
  const auto split = layers_of(balanced);
  CHECK(std::accumulate(split.begin(), split.end(), 0) == 14);
  CHECK(split.back() < split[1]);  // a vocabulary of 128256 costs about as much as three of these layers
  CHECK(heaviest(balanced) < heaviest(even));
  CHECK(balanced.estimate->time.step < even.estimate->time.step);
}

TEST_CASE("layers_per_stage auto moves layers away from a rank that would not fit in memory", "[plan]") {
  const std::string distributed = "strategy: ddp, pp_size: 4, pipeline: {pp_schedule: 1F1B, layers_per_stage: auto}";
  const auto free = planned(distributed, "hardware: {profile: h100}\n", 1024);
  const auto& memory = free.estimate->memory;
  double least = 1e300, most = 0;
  for (const auto& rank : memory.ranks) {
    least = std::min(least, rank.most().total());
    most = std::max(most, rank.most().total());
  }
  REQUIRE(least < most);
  const auto bytes = static_cast<std::int64_t>(most * 0.985);
  const auto tight = planned(distributed, "hardware: {profile: h100, memory: '" + std::to_string(bytes) + "'}\n", 1024);
  CHECK(tight.estimate->memory.fit != estimate::Fit::kDoesNotFit);
  CHECK(layers_of(tight) != layers_of(free));
  CHECK(layers_of(tight)[static_cast<std::size_t>(memory.heaviest)] <
        layers_of(free)[static_cast<std::size_t>(memory.heaviest)]);
  // Where nothing fits, the split is that of equal time and the estimate says so.
  const auto none = planned(distributed, "hardware: {profile: h100, memory: 2GiB}\n", 1024);
  CHECK(layers_of(none) == layers_of(free));
  CHECK(none.estimate->memory.fit == estimate::Fit::kDoesNotFit);
}

TEST_CASE("a rank that does not fit gives up layers of a stage that can spare some", "[plan]") {
  // The first rank of a V has the first stage, and the last, which has one layer beside the head.
  const std::string distributed =
      "strategy: ddp, pp_size: 2, pipeline: {pp_schedule: ZBVZeroBubble, layers_per_stage: auto}";
  const auto largest = [](const estimate::EstimatedPlan& plan) {
    double out = 0;
    for (const auto& rank : plan.estimate->memory.ranks) out = std::max(out, rank.most().total());
    return out;
  };
  const auto free = planned(distributed, "hardware: {profile: h100}\n");
  REQUIRE(layers_of(free).back() == 1);
  REQUIRE(layers_of(free).front() > 1);
  REQUIRE(free.estimate->memory.heaviest == 0);
  for (const double share : {0.99, 0.8}) {  // of which the second is too little for any split
    const auto bytes = static_cast<std::int64_t>(largest(free) * share);
    const auto tight = planned(distributed, "hardware: {profile: h100, memory: '" + std::to_string(bytes) + "'}\n");
    CHECK(largest(tight) < largest(free));
  }
}

TEST_CASE("a layout string assigns layers to stages", "[plan]") {
  const auto plan = planned(
      "strategy: ddp, pp_size: 2, pipeline: {pp_schedule: Interleaved1F1B, pipeline_model_parallel_layout: "
      "'Et*2|t*5|(t)*4,|tttL'}");
  CHECK(layers_of(plan) == Counts{2, 5, 4, 3});
  CHECK(plan.pipeline->stages[0].part.has_embedding);
  CHECK(plan.pipeline->stages[3].part.has_head);
  CHECK(plan.pipeline->schedule.shape.ranks == 2);
  CHECK(layers_of(planned("strategy: ddp, pp_size: 2, pipeline: {pp_schedule: 1F1B, "
                          "pipeline_model_parallel_layout: 'Et*9|t*5L'}")) == Counts{9, 5});
}

TEST_CASE("an invalid layout is refused at its location in the recipe", "[plan]") {
  struct Row {
    const char* pipeline;
    const char* id;
    const char* words;
  };
  for (const Row& row : {
           Row{"pp_schedule: 1F1B, pipeline_model_parallel_layout: 'Et*9|t*4L'", "bad-value",
               "appears 13 times, not 14"},
           Row{"pp_schedule: 1F1B, pipeline_model_parallel_layout: 'Et*9|t*5xL'", "bad-value", "column"},
           Row{"pp_schedule: 1F1B, pipeline_model_parallel_layout: 't*9|t*5L'", "bad-value", "embedding"},
           Row{"pp_schedule: 1F1B, pipeline_model_parallel_layout: 'Et*9|t*2|t*3L'", "bad-value", "3 stages"},
           Row{"pp_schedule: 1F1B, pipeline_model_parallel_layout: 'Et*9|t*2|t*2|tL'", "schedule-single-stage", "one"},
           Row{"pp_schedule: ZBVZeroBubble, pipeline_model_parallel_layout: 'Et*9|t*5L'", "schedule-v-stages", "two"},
       }) {
    CAPTURE(row.pipeline);
    const auto loaded = config::read_recipe(
        std::string("model:\n  config: {model_type: llama, hidden_size: 64, intermediate_size: 128, num_hidden_layers: "
                    "14, num_attention_heads: 4, vocab_size: 100, max_position_embeddings: 64}\n"
                    "distributed: {strategy: ddp, pp_size: 2, pipeline: {") +
            row.pipeline + "}}\ndataset: {_target_: mock, seq_length: 32}\n",
        "recipe.yaml", {}, {});
    REQUIRE(loaded.problems.empty());
    const auto result = estimate::make_plan(loaded, {});
    REQUIRE_FALSE(result.problems.empty());
    const auto& problem = result.problems[0];
    INFO(to_text(problem));
    CHECK(problem.id == row.id);
    CHECK((problem.message + problem.help).find(row.words) != std::string::npos);
    CHECK(problem.key == "distributed.pipeline.pipeline_model_parallel_layout");
    CHECK(problem.where.line == 3);
  }
}

}  // namespace automodel::plan
