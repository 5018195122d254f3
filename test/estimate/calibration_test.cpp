#include "estimate/calibration.h"

#include <cstdlib>

#include <catch2/catch.hpp>

#include "estimate/past_runs.h"
#include "planned.h"
#include "report/plan_text.h"
#include "temporary_folder.h"

namespace automodel::estimate {
using namespace plan;
namespace {

Sample sample(const std::string& model, std::int64_t sequence, double work) {
  const PartTime layer{.work = work, .forward = 1, .backward = 2, .backward_input = 1.5, .backward_weight = 1};
  return {.model = model,
          .type = "float32",
          .threads = 1,
          .ranks = 1,
          .microbatch = 2,
          .sequence = sequence,
          .peak = 1e11,
          .memory_bandwidth = 1e10,
          .optimizer_rate = 1e9,
          .layers = {{"full", layer}},
          .embedding = {.work = 1e6, .forward = 0.1, .backward = 0.2, .backward_input = 0.2, .backward_weight = 0.2},
          .head = {.work = 1e9, .forward = 3, .backward = 6, .backward_input = 4, .backward_weight = 4}};
}

config::LoadedRecipe recipe(const std::string& distributed, const std::string& rest = "") {
  auto loaded = config::read_recipe(
      "device: cpu\nmodel:\n  config: {model_type: llama, hidden_size: 64, intermediate_size: 160, "
      "num_hidden_layers: 8, num_attention_heads: 4, num_key_value_heads: 2, vocab_size: 1000, "
      "max_position_embeddings: 128}\n"
      "distributed: {" +
          distributed +
          "}\ndataset: {_target_: mock, seq_length: 32}\n"
          "step_scheduler: {global_batch_size: 16, local_batch_size: 8}\n" +
          rest,
      "recipe.yaml", {}, {});
  INFO(to_text(loaded.problems));
  REQUIRE(loaded.problems.empty());
  return loaded;
}

EstimatedPlan planned(const config::LoadedRecipe& loaded, const Calibration* calibration) {
  auto result = make_plan(loaded, {.calibration = calibration});
  INFO(to_text(result.problems));
  REQUIRE(result.plan);
  return std::move(*result.plan);
}

/// A calibration of this machine at the sizes of `plan`.
Calibration measured_for(const EstimatedPlan& plan) {
  const auto& spec = plan.model->spec;
  const double tokens = static_cast<double>(plan.batch.microbatch * plan.batch.length);
  Calibration out;
  out.machine = machine_name();
  out.when = "2026-01-02";
  auto made = sample(widths_text(spec), plan.batch.length, plan.pipeline->stages[0].flops);
  made.threads = plan.estimate->hardware.threads;
  made.ranks = plan.mesh.world_size();
  made.microbatch = plan.batch.microbatch;
  const double layers = static_cast<double>(spec.layers), head = tokens * 2 * spec.hidden * spec.vocab;
  double all = 0;
  for (const auto& stage : plan.pipeline->stages) all += stage.flops;
  made.layers[0].time.work = (all - head) / layers;
  made.embedding.work = tokens * spec.hidden;
  made.head.work = head;
  out.add(made);
  return out;
}

/// Sets an environment variable for the duration of a test.
struct Variable {
  Variable(const char* name, const std::string& value) : name_(name) { setenv(name, value.c_str(), 1); }
  ~Variable() { setenv(name_, "", 1); }
  const char* name_;
};

}  // namespace

TEST_CASE("a calibration file reads back as it was written, and malformed ones are refused", "[plan]") {
  const test::TemporaryFolder folder;
  const Variable path("AUTOMODEL_CALIBRATION", (folder.path() / "deep" / "calibration.json").string());
  CHECK(calibration_text().empty());
  Calibration made;
  made.machine = "a machine";
  made.when = "2026-01-02";
  made.framework = 3e8;
  made.link = {.bandwidth = 1e9, .latency = 2e-6, .gather = 3e9, .scatter = 2e9, .sum = 1.5e9};
  made.add(sample("tiny", 32, 1e9));
  made.add_run(
      {.key = "abc", .recipe = "r.yaml", .when = "2026-01-02", .seconds = {1}, .predicted = {2}, .bytes = {3}});
  REQUIRE(write_calibration(made));
  const auto read = parse_calibration(calibration_text());
  REQUIRE(read);
  CHECK(to_json(*read) == to_json(made));
  CHECK(read->link.sum == 1.5e9);
  REQUIRE(read->samples.size() == 1);
  CHECK(read->samples[0].head.backward_weight == 4);
  CHECK(read->find_runs("abc")->bytes == std::vector<double>{3});
  CHECK(own_calibration("a machine").samples.size() == 1);
  CHECK(own_calibration("another").samples.empty());

  for (const char* text : {"", "{}", "[]", "not json", R"({"version":2,"samples":[],"runs":[]})",
                           R"({"version":1,"samples":[{}],"runs":[]})", R"({"version":1,"samples":3,"runs":[]})"}) {
    CAPTURE(text);
    CHECK_FALSE(parse_calibration(text));
  }
  // A sample without a rate that estimates divide by is skipped.
  made.samples[0].optimizer_rate = 0;
  CHECK(parse_calibration(to_json(made))->samples.empty());
}

TEST_CASE("an empty AUTOMODEL_CALIBRATION reads and writes nothing", "[plan]") {
  const Variable path("AUTOMODEL_CALIBRATION", "");
  CHECK(calibration_path().empty());
  CHECK_FALSE(write_calibration({}));
}

TEST_CASE("a calibration sample replaces one of the same sizes, and only the newest runs are kept", "[plan]") {
  Calibration made;
  made.add(sample("tiny", 32, 1e9));
  made.add(sample("tiny", 64, 1e9));
  made.add(sample("tiny", 32, 2e9));
  REQUIRE(made.samples.size() == 2);
  CHECK(made.samples.back().layers[0].time.work == 2e9);
  for (int i = 0; i < 300; ++i) made.add(sample("tiny", 100 + i, 1e9));
  CHECK(made.samples.size() == 64);
  CHECK(made.samples.back().sequence == 399);
  for (int i = 0; i < 9; ++i)
    made.add_run({.key = "a", .recipe = "", .when = "", .seconds = {1.0 * i}, .predicted = {0}, .bytes = {0}});
  CHECK(made.find_runs("a")->seconds == std::vector<double>{4, 5, 6, 7, 8});
  for (int i = 0; i < 200; ++i)
    made.add_run({.key = std::to_string(i), .recipe = "", .when = "", .seconds = {1}, .predicted = {1}, .bytes = {1}});
  CHECK(made.runs.size() == 64);
  CHECK(made.find_runs("a") == nullptr);
}

TEST_CASE("a plan uses the times measured at its sizes", "[plan]") {
  const auto loaded = recipe("strategy: ddp");
  const auto plain = planned(loaded, nullptr);
  CHECK_FALSE(plain.estimate->hardware.measured());
  CHECK(plain.estimate->hardware.origin.find("not calibrated") != std::string::npos);
  const auto calibration = measured_for(plain);
  const auto plan = planned(loaded, &calibration);
  REQUIRE(plan.estimate->hardware.measured());
  CHECK(plan.estimate->hardware.origin == "calibrated 2026-01-02");
  // Eight layers of 1 + 2 s, the head of 3 + 6 s, the embedding of 0.1 + 0.2 s; two microbatches per step.
  const double once = 8 * 3 + 9 + 0.3;
  CHECK(plan.estimate->time.schedule == Approx(2 * once).epsilon(1e-6));
  const double elements = static_cast<double>(plan.pipeline->stages[0].part.parameters);
  CHECK(plan.estimate->time.optimizer == Approx(elements / 1e9));
  CHECK(report::to_text(plan, report::ActionFormat::kNone).find("calibrated 2026-01-02") != std::string::npos);

  // Recomputation adds a forward pass of the layers.
  const auto again = planned(recipe("strategy: ddp, activation_checkpointing: full"), &calibration);
  CHECK(again.estimate->time.schedule == Approx(2 * (once + 8)).epsilon(1e-6));
}

TEST_CASE("layers that are faster than the measured matmul are the peak, and times stay the same", "[plan]") {
  const auto loaded = recipe("strategy: ddp");
  auto calibration = measured_for(planned(loaded, nullptr));
  const auto usual = planned(loaded, &calibration);
  // A matmul at a hundredth of the rate of the layers' forward passes.
  auto& made = calibration.samples.front();
  made.peak = made.layers[0].time.work / made.layers[0].time.forward / 100;
  const auto plan = planned(loaded, &calibration);
  CHECK(plan.estimate->time.schedule == Approx(usual.estimate->time.schedule));
  CHECK(plan.estimate->time.mfu < 1);
  CHECK(plan.estimate->hardware.forward_efficiency <= 1);
}

TEST_CASE("separate input and weight gradients have their own calibrated times", "[plan]") {
  const auto loaded =
      recipe("strategy: ddp, pp_size: 2, pipeline: {pp_schedule: ZBVZeroBubble, pp_microbatch_size: 2}");
  const auto plain = planned(loaded, nullptr);
  const auto calibration = measured_for(plain);
  const auto plan = planned(loaded, &calibration);
  CHECK(plan.estimate->hardware.origin == "calibrated 2026-01-02");
  const auto& stage = plan.estimate->time.stages[1];  // two layers
  CHECK(stage.forward == Approx(2));
  CHECK(stage.backward_input == Approx(3));
  CHECK(stage.backward_weight == Approx(2));
  CHECK(stage.backward == Approx(4));
}

TEST_CASE("times measured at other sizes are scaled by FLOPs, and the plan says so", "[plan]") {
  const auto loaded = recipe("strategy: ddp");
  auto calibration = measured_for(planned(loaded, nullptr));
  calibration.samples[0].sequence *= 2;
  for (auto* part : {&calibration.samples[0].layers[0].time, &calibration.samples[0].head})
    *part = part->for_work(part->work * 2);
  const auto plan = planned(loaded, &calibration);
  CHECK(plan.estimate->hardware.origin.find("--calibrate measures these sizes") != std::string::npos);
  CHECK(plan.estimate->time.schedule == Approx(2 * (8 * 3 + 9 + 0.3)).epsilon(1e-6));
  // Measurements in another dtype are not used.
  calibration.samples[0].type = "bfloat16";
  CHECK_FALSE(planned(loaded, &calibration).estimate->hardware.measured());
}

TEST_CASE("of several measurements the one nearest in size is used", "[plan]") {
  const auto loaded = recipe("strategy: ddp");
  auto calibration = measured_for(planned(loaded, nullptr));
  auto& near = calibration.samples[0];
  near.sequence *= 2;  // so that neither is exact
  for (auto* part : {&near.layers[0].time, &near.head}) *part = part->for_work(part->work * 2);
  auto far = near;
  far.sequence *= 8;
  for (auto* part : {&far.layers[0].time, &far.head}) {
    *part = part->for_work(part->work * 8);
    part->forward *= 10, part->backward *= 10;  // another rate, to see which one was taken
  }
  const double expected = 2 * (8 * 3 + 9 + 0.3);
  calibration.add(far);
  REQUIRE(calibration.samples.size() == 2);
  CHECK(planned(loaded, &calibration).estimate->time.schedule == Approx(expected).epsilon(1e-6));
  std::swap(calibration.samples[0], calibration.samples[1]);
  CHECK(planned(loaded, &calibration).estimate->time.schedule == Approx(expected).epsilon(1e-6));
}

TEST_CASE("the calibration of another machine is not used", "[plan]") {
  const auto loaded = recipe("strategy: ddp");
  auto calibration = measured_for(planned(loaded, nullptr));
  calibration.machine = "another machine";
  calibration.framework = 1e12;
  const auto plan = planned(loaded, &calibration);
  CHECK_FALSE(plan.estimate->hardware.measured());
  CHECK(plan.estimate->hardware.framework < 1e12);
  CHECK(plan.estimate->hardware.origin.find("another machine") != std::string::npos);
}

TEST_CASE("past runs of the same plan correct its estimated time", "[plan]") {
  const auto loaded = recipe("strategy: ddp");
  const auto plain = planned(loaded, nullptr);
  Calibration calibration;
  calibration.machine = machine_name();
  for (const double seconds : {5.0, 4.0, 30.0})
    calibration.add_run({.key = run_key(plain),
                         .recipe = "recipe.yaml",
                         .when = "2026-01-03",
                         .seconds = {seconds},
                         .tokens = {static_cast<double>(plain.batch.tokens())},
                         .predicted = {plain.estimate->time.step},
                         .bytes = {1e6}});
  const auto plan = planned(loaded, &calibration);
  CHECK(plan.estimate->time.step == Approx(5));  // the median
  CHECK(plan.estimate->past.runs == 3);
  CHECK(plan.estimate->past.uncorrected == Approx(plain.estimate->time.step));
  const double factor = 5 / plain.estimate->time.step;
  CHECK(plan.estimate->time.tokens_per_second == Approx(plain.estimate->time.tokens_per_second / factor));
  CHECK(plan.estimate->time.timeline.makespan == Approx(plain.estimate->time.timeline.makespan * factor));
  CHECK(report::to_text(plan, report::ActionFormat::kNone).find("corrected by 3 past runs (last 2026-01-03)") !=
        std::string::npos);
  // The key covers exactly what a step's time depends on.
  CHECK(run_key(plan) == run_key(plain));
  CHECK(run_key(planned(recipe("strategy: ddp", "seed: 7\n"), nullptr)) == run_key(plain));
  for (const char* distributed : {"strategy: fsdp2", "strategy: ddp, activation_checkpointing: full",
                                  "strategy: ddp, dp_size: 2", "strategy: ddp, pp_size: 2, pipeline: {}"})
    CHECK(run_key(planned(recipe(distributed), nullptr)) != run_key(plain));
  CHECK(run_key(planned(recipe("strategy: ddp", "peft: {}\n"), nullptr)) != run_key(plain));
  CHECK(planned(recipe("strategy: fsdp2"), &calibration).estimate->past.runs == 0);
  calibration.machine = "another machine";
  CHECK(planned(loaded, &calibration).estimate->past.runs == 0);
}

TEST_CASE("past runs correct the time per token where the length of rows is unknown", "[plan]") {
  const auto text = [](const std::string& more) {
    return "device: cpu\nmodel: {config: {model_type: llama, hidden_size: 32, intermediate_size: 64, "
           "num_hidden_layers: "
           "2, num_attention_heads: 2, vocab_size: 64, max_position_embeddings: 2048}}\n"
           "distributed: {strategy: ddp}\nstep_scheduler: {global_batch_size: 4, local_batch_size: 4}\n"
           "dataset: {_target_: jsonl, path: a.jsonl" +
           more + "}\n";
  };
  const auto assumed = test::planned(text(""));
  REQUIRE(assumed.batch.length == 0);
  PlanRequest run{.training = true, .longest_row = 100};
  const auto running = test::planned(text(""), run);
  CHECK(running.batch.planned_length() == 100);
  CHECK(run_key(running) == run_key(assumed));
  Calibration calibration;
  calibration.machine = machine_name();
  // Steps of 200 tokens took 2 s.
  calibration.add_run({.key = run_key(running),
                       .recipe = "r.yaml",
                       .when = "2026-01-03",
                       .seconds = {2},
                       .tokens = {200},
                       .predicted = {1},
                       .bytes = {1e6}});
  PlanRequest look;
  look.calibration = &calibration;
  const auto corrected = test::planned(text(""), look);
  CHECK(corrected.estimate->past.runs == 1);
  CHECK(corrected.estimate->time.tokens_per_second == Approx(100));
  run.calibration = &calibration;
  CHECK(test::planned(text(""), run).estimate->time.tokens_per_second == Approx(100));
  // Runs noted without their tokens say nothing.
  calibration.runs[0].tokens.clear();
  CHECK(test::planned(text(""), look).estimate->past.runs == 0);
}

}  // namespace automodel::estimate
