// Whole runs in which the batch of one step differs from the others: it is detected, reported and skipped.
#include <fstream>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/random.h"
#include "checkpoint/format/root_folder.h"
#include "checkpoint/format/run_state.h"
#include "comm/loopback/loopback.h"
#include "config/recipe.h"
#include "temporary_folder.h"
#include "torch_catch.h"
#include "train/run.h"

namespace automodel::train {
namespace {

using nlohmann::json;

constexpr int kSteps = 20, kRows = 4, kOdd = 12;  // the step whose rows are odd

/// Rows of ascending ids, and random rows in step kOdd.
std::string rows() {
  const RandomStream random(1, "odd rows");
  std::string out;
  for (int row = 0; row < kSteps * kRows; ++row) {
    std::vector<int> ids;
    for (int i = 0; i < 12; ++i)
      ids.push_back(row / kRows == kOdd ? static_cast<int>(random.below(static_cast<std::uint64_t>(row * 12 + i), 60))
                                        : i);
    out += json{{"input_ids", ids}}.dump() + "\n";
  }
  return out;
}

struct Outcome {
  comm::JobOutcome run = {};
  std::vector<json> steps = {}, events = {};
  checkpoint::RunState saved = {};  ///< newest checkpoint
};

std::vector<json> lines(const std::filesystem::path& path) {
  std::vector<json> out;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) out.push_back(json::parse(line));
  return out;
}

Outcome train(const test::TemporaryFolder& folder, const std::string& faults, int ranks = 1,
              const std::vector<std::string>& words = {}) {
  folder.write("rows.jsonl", rows());
  const std::string text =
      "seed: 3\n"
      "device: cpu\n"
      "model: {config: {model_type: llama, hidden_size: 32, intermediate_size: 64, num_hidden_layers: 2, "
      "num_attention_heads: 2, num_key_value_heads: 2, vocab_size: 64, max_position_embeddings: 32}}\n"
      "distributed: {strategy: fsdp2}\n"
      "optimizer: {_target_: adamw, lr: 0.01}\n"
      "dataset: {_target_: tokens, path: " +
      folder.path().string() +
      "/rows.jsonl}\n"
      "dataloader: {shuffle: false}\n"
      "step_scheduler: {global_batch_size: 4, local_batch_size: 2, max_steps: 20, ckpt_every_steps: 5}\n"
      "logging: {tensorboard: false}\n"
      "checkpoint: {checkpoint_dir: " +
      folder.path().string() + "/run}\n" + "fault_tolerance: " + faults + "\n";
  Diagnostics problems;
  const auto loaded = config::read_recipe(text, "r.yaml", config::parse_overrides(words, problems),
                                          [](const std::string&) { return std::nullopt; });
  REQUIRE(to_text(problems) + to_text(loaded.problems) == "");
  Outcome out;
  out.run = comm::run_ranks(ranks, [&](comm::World& world) { run_training(loaded, world); });
  out.steps = lines(folder.path() / "run/training.jsonl");
  out.events = lines(folder.path() / "run/events.jsonl");
  if (const auto newest = checkpoint::newest_checkpoint(folder.path() / "run"); !newest.empty())
    if (const auto state = checkpoint::read_run_state(newest, problems)) out.saved = *state;
  return out;
}

const json& event(const Outcome& outcome, const std::string& name) {
  for (const auto& each : outcome.events)
    if (each.at("event") == name) return each;
  FAIL("no event " << name);
  throw std::logic_error("FAIL returned");
}

}  // namespace

TEST_CASE("a loss spike is skipped and its samples are reported, on one rank and on two", "[train]") {
  for (const int ranks : {1, 2}) {
    const test::TemporaryFolder folder;
    const auto outcome = train(folder, "{loss_spike: {window: 5, factor: 1.5, action: skip}}", ranks);
    INFO(outcome.run.text);
    REQUIRE(outcome.run.ok());
    const auto& skip = event(outcome, "skip");
    CHECK(skip.at("step") == kOdd);
    CHECK(skip.at("reason") == "loss-spike");
    CHECK(skip.at("samples") == "48 49 50 51");
    CHECK(outcome.steps.size() == kSteps);
    // The odd rows did not change the weights: training continues as before.
    CHECK(outcome.steps[kOdd + 1].at("loss").get<double>() < outcome.steps[kOdd - 1].at("loss").get<double>());
    CHECK(outcome.saved.optimizer_steps == kSteps - 1);
  }
}

TEST_CASE("a rollback restores the newest checkpoint and skips the steps since then", "[train]") {
  for (const int ranks : {1, 2}) {
    const test::TemporaryFolder folder;
    const auto outcome = train(folder, "{loss_spike: {window: 5, factor: 1.5, action: rollback}}", ranks);
    INFO(outcome.run.text);
    REQUIRE(outcome.run.ok());
    const auto& back = event(outcome, "rollback");
    CHECK(back.at("step") == kOdd);
    CHECK(back.at("message").get<std::string>().find("epoch_0_step_9") != std::string::npos);
    CHECK(outcome.steps.size() == kSteps);
    // The loss after the rollback is that of the weights after step 9, as in step 10.
    const double at_ten = outcome.steps[10].at("loss"), behind = outcome.steps[kOdd + 1].at("loss");
    CHECK(behind == Approx(at_ten).epsilon(1e-6));
    CHECK(outcome.saved.optimizer_steps == kSteps - 3);
  }
}

TEST_CASE("a resumed run measures its first steps against the losses from before the restart", "[train]") {
  const test::TemporaryFolder folder;
  const std::string faults = "{loss_spike: {window: 5, factor: 1.5, action: skip}}";
  REQUIRE(train(folder, faults, 1, {"step_scheduler.max_steps=12"}).run.ok());  // up to the step before the odd rows
  const auto outcome = train(folder, faults);
  INFO(outcome.run.text);
  REQUIRE(outcome.run.ok());
  CHECK(event(outcome, "skip").at("step") == kOdd);
  CHECK(outcome.saved.optimizer_steps == kSteps - 1);
}

TEST_CASE("a loss spike stops the run if the recipe says so, and is ignored without a rule", "[train]") {
  const test::TemporaryFolder folder, other;
  const auto stopped = train(folder, "{loss_spike: {window: 5, factor: 1.5, action: stop}}");
  CHECK(stopped.run.code == ExitCode::kNonFinite);
  CHECK(stopped.run.text.find("error[loss-spike]: step 12: loss") != std::string::npos);
  const auto plain = train(other, "{}");
  REQUIRE(plain.run.ok());
  CHECK(plain.saved.optimizer_steps == kSteps);
}

TEST_CASE("non-finite losses are skipped up to max_bad_steps", "[train]") {
  const test::TemporaryFolder folder;
  const auto outcome = train(folder, "{on_non_finite: skip, max_bad_steps: 3}", 1, {"optimizer.lr=1e30"});
  CHECK(outcome.run.code == ExitCode::kNonFinite);
  CHECK(outcome.run.text.find("the 3 steps before were bad as well") != std::string::npos);
  CHECK(event(outcome, "skip").at("reason") == "non-finite");
}

TEST_CASE("a rollback without a checkpoint ends the run", "[train]") {
  const test::TemporaryFolder folder;
  const auto outcome = train(folder, "{on_non_finite: rollback}", 1, {"optimizer.lr=1e30"});
  CHECK(outcome.run.code == ExitCode::kNonFinite);
  CHECK(outcome.run.text.find("error[no-checkpoint-before]") != std::string::npos);
}

}  // namespace automodel::train
