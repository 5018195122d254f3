// Measuring this machine, and runs that correct later plans.
#include "train/calibrate.h"

#include <cstdlib>
#include <fstream>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "comm/loopback/loopback.h"
#include "estimate/estimated_plan.h"
#include "estimate/past_runs.h"
#include "temporary_folder.h"
#include "torch_catch.h"
#include "train/run.h"

namespace automodel::train {
namespace {

config::LoadedRecipe recipe(const test::TemporaryFolder& folder, const std::vector<std::string>& words = {}) {
  Diagnostics problems;
  const std::string text =
      "device: cpu\n"
      "model: {config: {model_type: gemma2, hidden_size: 32, intermediate_size: 64, num_hidden_layers: 4, "
      "num_attention_heads: 2, num_key_value_heads: 2, head_dim: 16, vocab_size: 64, max_position_embeddings: 32, "
      "sliding_window: 8}}\n"
      "distributed: {strategy: ddp}\n"
      "dataset: {_target_: mock, vocab_size: 64, seq_length: 16, num_samples: 64}\n"
      "step_scheduler: {global_batch_size: 4, local_batch_size: 2, max_steps: 4}\n"
      "checkpoint: {enabled: false, checkpoint_dir: " +
      folder.path().string() + "}\n";
  auto loaded = config::read_recipe(text, "r.yaml", config::parse_overrides(words, problems),
                                    [](const std::string&) { return std::nullopt; });
  REQUIRE(to_text(problems) + to_text(loaded.problems) == "");
  return loaded;
}

estimate::EstimatedPlan planned(const config::LoadedRecipe& loaded, int world = 1) {
  const auto calibration = estimate::parse_calibration(estimate::calibration_text());
  auto made = estimate::make_plan(loaded, {.world_size = world, .calibration = calibration ? &*calibration : nullptr});
  REQUIRE(made.plan);
  return std::move(*made.plan);
}

/// A calibration file in the folder, for the duration of a test.
struct CalibrationFile {
  explicit CalibrationFile(const test::TemporaryFolder& folder) {
    setenv("AUTOMODEL_CALIBRATION", (folder.path() / "calibration.json").c_str(), 1);
  }
  ~CalibrationFile() { setenv("AUTOMODEL_CALIBRATION", "", 1); }
};

comm::JobOutcome calibrate(const config::LoadedRecipe& loaded, int ranks, Measured what = Measured::kModel) {
  return comm::run_ranks(ranks, [&](comm::World& world) { run_calibration(loaded, world, what); });
}

}  // namespace

TEST_CASE("a calibration measures each kind of layer and is used by later plans", "[train]") {
  const test::TemporaryFolder folder;
  const CalibrationFile file(folder);
  const auto loaded = recipe(folder, {"distributed.dp_size=2", "step_scheduler.global_batch_size=8"});
  const auto outcome = calibrate(loaded, 2);
  INFO(outcome.text);
  REQUIRE(outcome.ok());
  const auto made = estimate::parse_calibration(estimate::calibration_text());
  REQUIRE(made);
  CHECK(made->machine == estimate::machine_name());
  CHECK(made->framework > 1e6);
  CHECK(made->link.bandwidth > 0);
  CHECK(made->link.sum > 0);
  REQUIRE(made->samples.size() == 1);
  const auto& sample = made->samples[0];
  CHECK(sample.ranks == 2);
  CHECK(sample.sequence == 16);
  CHECK(sample.microbatch == 2);
  REQUIRE(sample.layers.size() == 2);  // Gemma 2 has layers with a window and without
  CHECK(sample.layers[0].kind == "full");
  CHECK(sample.layers[1].kind == "sliding");
  // Both kinds have the same matmuls, so their times are of the same order.
  const double ratio = sample.layers[0].time.forward / sample.layers[1].time.forward;
  CHECK(ratio > 0.2);
  CHECK(ratio < 5);
  const auto plan = planned(loaded, 2);
  REQUIRE(plan.estimate->hardware.measured());
  CHECK(plan.estimate->hardware.origin == "calibrated " + made->when);
  CHECK(plan.estimate->hardware.framework == Approx(made->framework));
}

TEST_CASE("links can be measured without a model", "[train]") {
  const test::TemporaryFolder folder;
  const CalibrationFile file(folder);
  REQUIRE(calibrate({}, 2, Measured::kLinks).ok());
  const auto made = estimate::parse_calibration(estimate::calibration_text());
  REQUIRE(made);
  CHECK(made->samples.empty());
  CHECK(made->link.latency > 0);
}

TEST_CASE("a run records its time and memory, and the next plan is corrected by them", "[train]") {
  const test::TemporaryFolder folder;
  const CalibrationFile file(folder);
  const auto loaded = recipe(folder);
  CHECK(planned(loaded).estimate->past.runs == 0);
  for (int run = 1; run <= 2; ++run) {
    const auto outcome = comm::run_ranks(1, [&](comm::World& world) { run_training(loaded, world); });
    INFO(outcome.text);
    REQUIRE(outcome.ok());
    const auto estimate = nlohmann::json::parse(folder.read("estimate.json"));
    CHECK(estimate["past_runs"] == run - 1);
    const auto plan = planned(loaded);
    CHECK(plan.estimate->past.runs == run);
    const double measured = estimate["measured_step_seconds"];
    if (run == 1) CHECK(plan.estimate->time.step == Approx(measured));
    if (run == 1) CHECK(plan.estimate->past.bytes == Approx(estimate["measured_tensor_bytes"].get<double>()));
  }
}

TEST_CASE("a run does not change the calibration of another machine", "[train]") {
  const test::TemporaryFolder folder;
  const CalibrationFile file(folder);
  estimate::Calibration other;
  other.machine = "another machine";
  REQUIRE(estimate::write_calibration(other));
  const auto loaded = recipe(folder);
  REQUIRE(comm::run_ranks(1, [&](comm::World& world) { run_training(loaded, world); }).ok());
  CHECK(estimate::calibration_text() == estimate::to_json(other));
}

TEST_CASE("a calibration that cannot be measured or written is refused with the reason", "[train]") {
  const test::TemporaryFolder folder;
  const CalibrationFile file(folder);
  const auto refused = [&](const std::vector<std::string>& words) { return calibrate(recipe(folder, words), 1).text; };
  CHECK(refused({"device=cuda"}).find("no-device") != std::string::npos);
  CHECK(refused({"model.config.hidden_size=65536", "model.config.intermediate_size=1048576"})
            .find("too-large-to-measure") != std::string::npos);
  folder.write("file", "");
  setenv("AUTOMODEL_CALIBRATION", (folder.path() / "file" / "calibration.json").c_str(), 1);
  CHECK(refused({}).find("cannot-write") != std::string::npos);
}

}  // namespace automodel::train
