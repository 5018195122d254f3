#include "train/step_scheduler.h"

#include <catch2/catch.hpp>

#include "config/recipe.h"
#include "golden_file.h"

namespace automodel::train {
namespace {

struct Case {
  std::optional<StepScheduler> scheduler;
  Diagnostics problems;
};

/// `section` is the text after "step_scheduler:".
Case scheduler_of(const std::string& section, int dp_size, std::optional<std::int64_t> runs_per_epoch) {
  const config::Environment empty = [](const std::string&) { return std::nullopt; };
  auto loaded = config::read_recipe("model: {config: {model_type: llama}}\nstep_scheduler: " + section + "\n", "r.yaml",
                                    {}, empty);
  Case out{std::nullopt, loaded.problems};
  if (out.problems.empty())
    out.scheduler = StepScheduler::make(loaded.recipe.step_scheduler(), dp_size, runs_per_epoch, out.problems);
  return out;
}

}  // namespace

TEST_CASE("the step scheduler plans the same steps as NeMo AutoModel and refuses the same settings", "[train]") {
  int equal = 0;
  int refused = 0;
  for (const auto& row : golden::load("nemo/step_scheduler.json")) {
    const auto& input = row["input"];
    INFO(input.dump());
    auto section = input["step_scheduler"];
    section["local_batch_size"] = input["local_batch_size"];
    std::optional<std::int64_t> runs;
    if (!input["dataloader_len"].is_null()) runs = input["dataloader_len"].get<std::int64_t>();
    const auto made = scheduler_of(section.dump(), input["dp_size"], runs);
    if (row.contains("error")) {
      CHECK(!made.scheduler);
      REQUIRE(!made.problems.empty());
      ++refused;
      continue;
    }
    INFO(to_text(made.problems));
    REQUIRE(made.scheduler);
    const StepScheduler& s = *made.scheduler;
    const auto& output = row["output"];
    CHECK(s.accumulation_runs() == output["grad_acc_steps"]);
    CHECK(s.steps_per_epoch().value_or(-1) == (output["epoch_len"].is_null() ? -1 : output["epoch_len"].get<int>()));
    CHECK(s.num_epochs() == output["num_epochs"]);
    CHECK(s.max_steps() == output["max_steps"]);
    CHECK(s.ckpt_every_steps() == output["ckpt_every_steps"]);
    // Columns: step, epoch, n_batches, is_val, is_ckpt, is_last_step, is_last_batch; the remaining two (remote loggers,
    // Python's garbage collector) have no counterpart here.
    std::int64_t step = s.first_step();
    for (const auto& line : output["trace"]) {
      const StepPlan plan = s.plan(step);
      const std::vector<std::int64_t> ours = {plan.step,       plan.epoch, plan.runs,         plan.validate,
                                              plan.checkpoint, plan.last,  plan.last_of_epoch};
      auto theirs = line.get<std::vector<std::int64_t>>();
      theirs.resize(ours.size());
      CHECK(ours == theirs);
      ++step;
    }
    CHECK(s.end_step() == step);
    // After the loop, NeMo AutoModel's counter is one step ahead, up to max_steps.
    CHECK(std::min(s.max_steps(), s.end_step() + 1) == output["final_state_dict"]["step"]);
    ++equal;
  }
  CHECK(equal == 16);
  CHECK(refused == 16);
}

TEST_CASE("the plan of a step does not depend on where the run started", "[train]") {
  const auto whole = *scheduler_of("{global_batch_size: 8, local_batch_size: 2, num_epochs: 3}", 2, 7).scheduler;
  REQUIRE(whole.end_step() == 12);
  for (int start = 0; start < 12; ++start) {
    const auto later = *scheduler_of("{global_batch_size: 8, local_batch_size: 2, num_epochs: 3, start_step: " +
                                         std::to_string(start) + ", start_epoch: " + std::to_string(start / 4) + "}",
                                     2, 7)
                            .scheduler;
    CHECK(later.first_step() == start);
    CHECK(later.end_step() == 12);
    CHECK(later.total_steps() == 12);
    for (std::int64_t step = start; step < 12; ++step) CHECK(later.plan(step) == whole.plan(step));
  }
}

TEST_CASE("a run ends with its steps or its epochs, whichever end first, and so do its learning rates", "[train]") {
  const auto of = [](const std::string& keys) {  // epochs of 4 steps
    return *scheduler_of("{global_batch_size: 8, local_batch_size: 2, " + keys + "}", 2, 7).scheduler;
  };
  for (const auto& [keys, steps] :
       {std::pair("num_epochs: 3, max_steps: 5", 5), {"num_epochs: 3, max_steps: 20", 12}}) {
    CHECK(of(keys).end_step() == steps);
    CHECK(of(keys).total_steps() == steps);
  }
  CHECK(of("num_epochs: 3, start_epoch: 1").end_step() == 8);
}

TEST_CASE("checkpoints are validated unless validate_on_checkpoint is false", "[train]") {
  for (const bool validates : {true, false}) {
    const auto s = *scheduler_of(
                        "{global_batch_size: 4, local_batch_size: 4, ckpt_every_steps: 2, val_every_steps: 3, "
                        "validate_on_checkpoint: " +
                            std::string(validates ? "true}" : "false}"),
                        1, 10)
                        .scheduler;
    CHECK(s.plan(1).checkpoint);
    CHECK(s.plan(1).validate == validates);
    CHECK(s.plan(2).validate);
  }
}

TEST_CASE("a requested stop saves a checkpoint, skips validation and ends the run", "[train]") {
  const auto s =
      *scheduler_of("{global_batch_size: 4, local_batch_size: 4, val_every_steps: 1, num_epochs: 1}", 1, 10).scheduler;
  CHECK((s.plan(3).validate && !s.plan(3).checkpoint && !s.plan(3).last));
  const StepPlan stopped = s.plan(3, true);
  CHECK((!stopped.validate && stopped.checkpoint && stopped.last));
}

TEST_CASE("an indivisible global batch size is reported with the nearest valid ones", "[train]") {
  const auto help = [](const std::string& section, int dp) { return scheduler_of(section, dp, 8).problems.at(0).help; };
  CHECK(help("{global_batch_size: 10, local_batch_size: 2}", 2).find("nearest: 8 or 12;") == 0);
  CHECK(help("{global_batch_size: 3, local_batch_size: 2}", 2).find("nearest: 4;") == 0);
  CHECK(scheduler_of("{global_batch_size: 10, local_batch_size: 2}", 2, 8).problems.at(0).id == "indivisible");
}

TEST_CASE("endless data needs max_steps, and empty data is refused", "[train]") {
  CHECK(scheduler_of("{global_batch_size: 4}", 1, std::nullopt).problems.at(0).key == "step_scheduler.max_steps");
  CHECK(scheduler_of("{global_batch_size: 4}", 1, 0).problems.at(0).id == "empty-data");
  const auto endless = *scheduler_of("{global_batch_size: 4, max_steps: 20}", 1, std::nullopt).scheduler;
  CHECK(endless.plan(15).epoch == 0);
  CHECK(endless.plan(15).step_in_epoch == 15);
  CHECK(endless.total_steps() == 20);
}

}  // namespace automodel::train
