#include "train/slow_ranks.h"

#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include <nlohmann/json.hpp>

#include "comm/loopback/loopback.h"
#include "config/recipe.h"
#include "temporary_folder.h"
#include "torch_catch.h"
#include "train/run.h"

namespace automodel::train {
namespace {

using nlohmann::json;

/// Data, compute, gradients, optimizer, waiting.
PhaseSeconds seconds(double data, double compute, double waiting) {
  return {data, compute, 0.01, 0.01, waiting};
}

std::vector<RankPlace> on_one_stage(int ranks) {
  std::vector<RankPlace> out;
  for (int rank = 0; rank < ranks; ++rank) out.push_back({0, "host" + std::to_string(rank / 2)});
  return out;
}

TEST_CASE("a rank that the others wait for is reported once, with its host and phase") {
  SlowRanks rule(config::SlowRankConfig{}, on_one_stage(4));
  // A step takes 0.3 s on every rank; only their own work differs.
  std::vector<PhaseSeconds> times(4, seconds(0.01, 0.1, 0.17));
  CHECK(rule.judge(times).empty());
  times[3] = seconds(0.01, 0.27, 0);
  const auto slow = rule.judge(times);
  REQUIRE(slow.size() == 1);
  CHECK(slow[0].rank == 3);
  CHECK(slow[0].phase == StepPhase::kCompute);
  CHECK(slow[0].seconds == Approx(0.30));
  CHECK(slow[0].usual == Approx(0.13));
  CHECK(rule.text_of(slow[0]) ==
        "rank 3 (host host1) is slow: 300 ms of its own work in a step, the others 130 ms; most of it in compute");
  CHECK(rule.judge(times).empty());
  // Another rank, in another phase.
  times[0] = seconds(0.2, 0.1, 0);
  const auto next = rule.judge(times);
  REQUIRE(next.size() == 1);
  CHECK(next[0].rank == 0);
  CHECK(next[0].phase == StepPhase::kData);
}

TEST_CASE("one of two ranks can be slow, and delays below a millisecond are ignored") {
  SlowRanks rule(config::SlowRankConfig{}, on_one_stage(2));
  const auto fast = PhaseSeconds{0, 1e-4, 0, 0, 0};
  CHECK(rule.judge({fast, PhaseSeconds{0, 9e-4, 0, 0, 0}}).empty());
  const auto slow = rule.judge({fast, PhaseSeconds{0, 9e-3, 0, 0, 0}});
  REQUIRE(slow.size() == 1);
  CHECK(slow[0].rank == 1);
}

TEST_CASE("ranks are compared within their stage, and single-rank stages by their planned work") {
  // The last stage has three times the work.
  const std::vector<PhaseSeconds> uneven = {seconds(0, 0.1, 0.2), seconds(0, 0.3, 0)};
  SlowRanks alone(config::SlowRankConfig{}, {{0, "a", 1}, {1, "a", 3}});
  CHECK(alone.judge(uneven).empty());
  SlowRanks unplanned(config::SlowRankConfig{}, {{0, "a", 1}, {1, "a", 1}});
  CHECK(unplanned.judge(uneven).size() == 1);
  // Where a stage has several ranks, the plan's shares do not matter.
  SlowRanks several(config::SlowRankConfig{}, {{0, "a", 1}, {0, "b", 1}, {1, "a", 1}, {1, "b", 1}});
  CHECK(several.judge({uneven[0], uneven[0], uneven[1], uneven[1]}).empty());
  const auto slow = several.judge({uneven[0], seconds(0, 0.3, 0), uneven[1], uneven[1]});
  REQUIRE(slow.size() == 1);
  CHECK(slow[0].rank == 1);
}

struct SlowedRun {
  comm::JobOutcome run = {};
  std::vector<json> steps = {}, ranks = {}, slow = {};
};

std::vector<json> json_lines(const std::filesystem::path& path) {
  std::vector<json> out;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) out.push_back(json::parse(line));
  return out;
}

/// Ten steps on four ranks, of which rank 2 sleeps before each action.
SlowedRun slowed(const std::string& slow_rank) {
  const test::TemporaryFolder folder;
  const auto loaded = config::read_recipe(
      "seed: 3\n"
      "device: cpu\n"
      "model: {config: {model_type: llama, hidden_size: 32, intermediate_size: 64, num_hidden_layers: 2, "
      "num_attention_heads: 2, num_key_value_heads: 2, vocab_size: 64, max_position_embeddings: 32}}\n"
      "distributed: {strategy: fsdp2}\n"
      "optimizer: {_target_: adamw, lr: 0.01}\n"
      "dataset: {_target_: mock, vocab_size: 64, seq_length: 16, num_samples: 256}\n"
      "step_scheduler: {global_batch_size: 8, local_batch_size: 2, max_steps: 10}\n"
      "logging: {tensorboard: false}\n"
      "checkpoint: {enabled: false, checkpoint_dir: " +
          folder.path().string() + "/run}\nfault_tolerance: {slow_rank: " + slow_rank + "}\n",
      "r.yaml", {}, [](const std::string&) { return std::nullopt; });
  REQUIRE(to_text(loaded.problems) == "");
  SlowedRun out;
  out.run = comm::run_ranks(4, [&](comm::World& world) {
    run_training(loaded, world, [](comm::World& here, const schedule::Slot&) {
      if (here.rank() == 2) std::this_thread::sleep_for(std::chrono::milliseconds(60));
    });
  });
  out.steps = json_lines(folder.path() / "run/training.jsonl");
  out.ranks = json_lines(folder.path() / "run/ranks.jsonl");
  for (const auto& event : json_lines(folder.path() / "run/events.jsonl"))
    if (event.at("event") == "slow-rank") out.slow.push_back(event);
  return out;
}

}  // namespace

TEST_CASE("a slowed rank is detected in a run, and the losses do not change", "[train]") {
  const auto outcome = slowed("{factor: 4, steps: 4}");
  INFO(outcome.run.text);
  REQUIRE(outcome.run.ok());
  REQUIRE(outcome.slow.size() == 1);
  CHECK(outcome.slow[0].at("rank") == 2);
  CHECK(outcome.slow[0].at("phase") == "compute");
  CHECK(outcome.slow[0].at("step") == 3);
  CHECK_FALSE(outcome.slow[0].at("host").get<std::string>().empty());
  // Times are gathered after steps 3 and 7, during the following step.
  REQUIRE(outcome.ranks.size() == 2);
  CHECK(outcome.ranks[1].at("step") == 7);
  CHECK(outcome.ranks[1].at("steps") == 4);
  for (const char* phase : {"data", "compute", "gradients", "optimizer", "waiting"})
    CHECK(outcome.ranks[0].at(phase).size() == 4);
  // The other ranks wait for rank 2, which waits for none.
  CHECK(outcome.ranks[0].at("compute")[2].get<double>() > 0.06);
  CHECK(outcome.ranks[0].at("waiting")[0].get<double>() > outcome.ranks[0].at("waiting")[2].get<double>());
  const auto without = slowed("null");
  REQUIRE(without.run.ok());
  CHECK(without.ranks.empty());
  CHECK(without.slow.empty());
  REQUIRE(without.steps.size() == outcome.steps.size());
  for (std::size_t step = 0; step < without.steps.size(); ++step)
    CHECK(without.steps[step].at("loss") == outcome.steps[step].at("loss"));
}

}  // namespace automodel::train
