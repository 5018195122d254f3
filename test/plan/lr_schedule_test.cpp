#include "plan/lr_schedule.h"

#include <cmath>

#include <catch2/catch.hpp>

#include "config/recipe.h"
#include "golden_file.h"

namespace automodel::plan {
namespace {

struct Case {
  config::Recipe recipe;
  Diagnostics problems;
  std::optional<LrSchedule> schedule;
};

/// A schedule as a recipe makes it; `section` is the text after "lr_scheduler:", empty for no section.
Case schedule_of(const std::string& section, std::int64_t total_steps, double lr = 1e-3, double wd = 0.1) {
  const config::Environment empty = [](const std::string&) { return std::nullopt; };
  auto loaded = config::read_recipe("model: {config: {model_type: llama}}\noptimizer: {lr: " + std::to_string(lr) +
                                        ", weight_decay: " + std::to_string(wd) + "}\n" +
                                        (section.empty() ? "" : "lr_scheduler: " + section + "\n"),
                                    "r.yaml", {}, empty);
  Case out{loaded.recipe, loaded.problems, std::nullopt};
  if (!out.problems.empty()) return out;
  const auto& adamw = std::get<config::AdamWConfig>(out.recipe.optimizer());
  out.schedule =
      make_lr_schedule(out.recipe.lr_scheduler(), adamw.lr(), adamw.weight_decay(), total_steps, out.problems);
  return out;
}

/// The number of steps that NeMo AutoModel derives a schedule's defaults from.
std::int64_t total_steps(const nlohmann::json& input) {
  const auto& max_steps = input["max_steps"];
  if (input["epoch_len"].is_null()) return max_steps;
  const std::int64_t all = input["num_epochs"].get<std::int64_t>() * input["epoch_len"].get<std::int64_t>();
  return max_steps.is_null() ? all : std::min(all, max_steps.get<std::int64_t>());
}

}  // namespace

TEST_CASE("learning-rate schedules equal NeMo AutoModel's at every step and refuse the same settings", "[optim]") {
  int refused = 0;
  int equal = 0;
  for (const auto& row : golden::load("nemo/lr_schedule.json")) {
    const auto& input = row["input"];
    INFO(input.dump());
    const auto made = schedule_of(input["lr_scheduler"].dump(), total_steps(input), input["base_lr"], input["base_wd"]);
    if (row.contains("error")) {
      REQUIRE(!made.problems.empty());
      CHECK(!made.schedule);
      CHECK((made.problems[0].id == "bad-type" || !made.problems[0].help.empty()));
      ++refused;
      continue;
    }
    INFO(to_text(made.problems));
    REQUIRE(made.schedule);
    const auto& output = row["output"];
    const auto settings = nlohmann::json::parse(config::to_json(config::to_dict(made.schedule->settings())));
    CHECK(settings == output["resolved"]);
    std::int64_t n = 0;
    for (const auto& pair : output["lr_wd_per_step"]) {
      CHECK(made.schedule->learning_rate(n) == pair[0].get<double>());
      CHECK(made.schedule->weight_decay(n) == pair[1].get<double>());
      ++n;
    }
    ++equal;
  }
  CHECK(equal == 14);
  CHECK(refused == 10);
}

TEST_CASE("without an lr_scheduler section learning rate and weight decay are constant", "[optim]") {
  const auto made = schedule_of("", 10, 3e-4, 0.2);
  REQUIRE(made.schedule);
  for (const std::int64_t n : {0, 1, 5, 9, 10, 1000}) {
    CHECK(made.schedule->learning_rate(n) == 3e-4);
    CHECK(made.schedule->weight_decay(n) == 0.2);
  }
}

TEST_CASE("the default warm-up is a tenth of the steps, at most 1000", "[optim]") {
  for (const auto& [total, warmup] : {std::pair(1, 0), {9, 0}, {10, 1}, {99, 9}, {10000, 1000}, {20000, 1000}})
    CHECK(schedule_of("{}", total).schedule->settings().lr_warmup_steps() == warmup);
}

TEST_CASE("the final decay of a WSD schedule ends at min_lr in every style", "[optim]") {
  for (const std::string style : {"linear", "cosine", "exponential", "minus_sqrt"}) {
    const auto made = schedule_of("{lr_decay_style: WSD, wsd_decay_steps: 10, lr_wsd_decay_style: " + style +
                                      ", lr_warmup_steps: 2, min_lr: 1.0e-5}",
                                  40);
    REQUIRE(made.schedule);
    CHECK(made.schedule->learning_rate(30) == 1e-3);
    CHECK(made.schedule->learning_rate(40) == Approx(1e-5));
    const double coefficient = style == "linear" || style == "cosine" ? 0.5
                               : style == "exponential"               ? 2 * std::sqrt(0.5) - 1
                                                                      : 1 - std::sqrt(0.5);
    CHECK(made.schedule->learning_rate(35) == Approx(1e-5 + coefficient * (1e-3 - 1e-5)));
  }
}

TEST_CASE("each invalid setting of a schedule is reported with its key and a valid value", "[optim]") {
  const auto problem = [](const std::string& section) {
    const auto made = schedule_of(section, 20);
    REQUIRE(made.problems.size() == 1);
    return made.problems[0].key + ": " + made.problems[0].help;
  };
  CHECK(problem("{lr_warmup_steps: 20}").find("lr_scheduler.lr_warmup_steps: lr_warmup_steps must be at most 19") == 0);
  CHECK(problem("{min_lr: 0.5}").find("lr_scheduler.min_lr: min_lr must be at most 0.001") == 0);
  CHECK(problem("{init_lr: 0.5}").find("lr_scheduler.init_lr: init_lr must be at most 0.001") == 0);
  CHECK(problem("{lr_decay_style: WSD, lr_wsd_decay_style: linear}") ==
        "lr_scheduler.wsd_decay_steps: give the length of the final decay, for example 2");
  CHECK(problem("{lr_decay_style: WSD, wsd_decay_steps: 5}") ==
        "lr_scheduler.lr_wsd_decay_style: one of linear, cosine, exponential, minus_sqrt");
  CHECK(problem("{start_wd: 0.2, end_wd: 0.1, wd_incr_style: linear}").find("lr_scheduler.end_wd: ") == 0);
  CHECK(problem("{start_wd: 0.0, wd_incr_style: linear, wd_incr_steps: 0}").find("lr_scheduler.wd_incr_steps: ") == 0);
  CHECK(problem("{max_lr: .inf}").find("lr_scheduler.max_lr: ") == 0);
}

TEST_CASE("all invalid settings of a schedule are reported at once", "[optim]") {
  CHECK(schedule_of("{lr_warmup_steps: 30, min_lr: 1, init_lr: 1, end_wd: 0}", 20).problems.size() == 4);
}

TEST_CASE("a resumed run uses the checkpoint's schedule unless the recipe overrides it", "[optim]") {
  const auto saved = schedule_of("{lr_warmup_steps: 1}", 20).schedule->settings();
  Diagnostics problems;
  const auto resumed = [&](const std::string& section) {
    const auto now = schedule_of(section, 40);
    INFO(to_text(now.problems));
    REQUIRE(now.schedule);
    return resumed_settings(now.recipe.lr_scheduler(), now.schedule->settings(), saved, problems);
  };
  CHECK(resumed("{lr_warmup_steps: 2}") == saved);
  CHECK(resumed("{use_checkpoint_opt_param_scheduler: false, override_opt_param_scheduler: true}").lr_decay_steps() ==
        40);
  CHECK(resumed("{override_opt_param_scheduler: true}").lr_decay_steps() == 40);  // alone as well
  CHECK(rate_changes(resumed("{override_opt_param_scheduler: true, lr_warmup_steps: 1}"), saved) ==
        std::vector<std::string>{"lr_decay_steps 40 (was 20)"});  // a constant weight decay has no length
  CHECK(problems.empty());
  resumed("{use_checkpoint_opt_param_scheduler: false, lr_warmup_steps: 1}");
  REQUIRE(problems.size() == 1);
  CHECK(problems[0].key == "lr_scheduler.lr_decay_steps");
  CHECK(problems[0].message == "lr_decay_steps is 40 in the recipe, but 20 in the checkpoint");
  resumed("{use_checkpoint_opt_param_scheduler: false, lr_warmup_steps: 1, lr_decay_steps: 20}");
  CHECK(problems.size() == 1);
}

}  // namespace automodel::plan
