#include <algorithm>
#include <filesystem>
#include <thread>

#include <fmt/format.h>

#include "base/error.h"
#include "commands.h"
#include "compare_schedules.h"
#include "estimate/estimated_plan.h"
#include "estimate/past_runs.h"
#include "estimate/search.h"
#include "failures.h"
#include "from_option.h"
#include "launch/train_command.h"
#include "plan_document.h"
#include "report.h"
#include "report/page.h"
#include "report/plan_diff.h"
#include "report/plan_text.h"
#include "schedule/timeline_svg.h"

namespace automodel::app {

namespace {

/// --memory and --model are words for recipe keys.
Options with_keys(Options options) {
  if (!options.memory.empty()) options.overrides.push_back("hardware.memory=" + options.memory);
  // Without --from, --model is the recipe's section; what other words change in it comes later.
  if (options.from.empty() && !options.model.empty()) {
    options.overrides.insert(options.overrides.begin(), "model=" + options.model);
    options.model.clear();
  }
  return options;
}

/// What does not prevent a plan, but a run.
Diagnostics untrainable(const config::LoadedRecipe& loaded) {
  if (loaded.recipe.dataset()) return {};
  return {Diagnostic{"missing-key"}
              .says("the recipe has no dataset: it can be planned, not trained")
              .hint("add 'dataset:' with a _target_")
              .at(loaded.origins.nearest("dataset"))
              .of("dataset")};
}

/// Searches the fastest plans for this many ranks; the best one is written to --apply.
int run_search(const Options& options, const config::LoadedRecipe& loaded, estimate::PlanRequest request) {
  if (!options.world_size) {
    const auto result = estimate::make_plan(loaded, request);
    if (!result.plan) return refuse(result.problems, loaded, options.json);
    request.world_size = result.plan->mesh.world_size();
  }
  const auto result = estimate::search_plans(loaded, {.plan = request, .world_size = *request.world_size});
  if (!result.problems.empty()) return refuse(result.problems, loaded, options.json);
  options.json ? out(estimate::to_json(result) + "\n") : say(estimate::to_text(result));
  if (result.best.empty()) return code(ExitCode::kRefused);
  if (options.apply.empty()) return code(ExitCode::kOk);
  const auto text = fmt::format("# {} with the fastest plan that a search found for {} ranks.\n{}", loaded.path,
                                *request.world_size, estimate::apply_candidate(loaded, result.best[0]));
  write_file(options.apply, text);
  if (!options.json) out(fmt::format("written   {}\n", options.apply));
  return code(ExitCode::kOk);
}

/// What differs between this plan and that of --diff, with the same overrides and ranks.
int print_diff(const Options& options, const config::LoadedRecipe& loaded, const estimate::EstimatedPlan& plan,
               const estimate::PlanRequest& request) {
  auto other = options;
  other.recipe = options.diff;
  const auto compared = load(other);
  if (!compared.problems.empty()) return refuse(compared.problems, compared, options.json);
  const auto result = plan_with_data(options, compared, request);
  if (!result.plan) return refuse(result.problems, compared, options.json);
  const report::Planned before{loaded, plan}, after{compared, *result.plan};
  options.json ? out(report::diff_to_json(before, after) + "\n") : say(report::diff_to_text(before, after));
  return code(ExitCode::kOk);
}

/// Draws the schedule with unit-time forward passes and, below it, with estimated durations.
std::string draw(const estimate::EstimatedPlan& plan) {
  const auto& pipeline = *plan.pipeline;
  std::vector<schedule::SvgChart> charts = {
      {&pipeline.timeline, {.title = pipeline.name + ", a forward pass takes 1", .in_seconds = false}}};
  if (plan.estimate)
    charts.push_back({&plan.estimate->time.timeline,
                      {.title = fmt::format("{} as estimated ({}: {})", pipeline.name, plan.estimate->hardware.name,
                                            plan.estimate->hardware.origin)}});
  return schedule::timeline_svg(charts);
}

/// Throws Error if what is measured would not be kept.
void need_calibration_file() {
  if (estimate::calibration_path().empty())
    throw Error(Diagnostic{"cannot-write"}
                    .says("AUTOMODEL_CALIBRATION is empty: there is no file for what would be measured")
                    .hint("unset it, or name a file"));
}

/// Measures the parts of the recipe's model, or of common models, with as many ranks as would share this machine, and
/// messages between two ranks. Returns the exit code.
int calibrate(const Options& options, const config::LoadedRecipe* loaded) {
  const int cores = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  if (loaded == nullptr) {
    need_calibration_file();
    const int failed = launch::run_ranks(launch::Work::kCalibrateUsual, 1, "", {});
    return failed != 0 || cores < 2 ? failed : launch::run_ranks(launch::Work::kCalibrateUsual, 2, "", {});
  }
  const auto result =
      plan_with_data(options, *loaded, {.world_size = options.world_size, .ranks_per_node = options.gpus_per_node});
  if (!result.plan) return refuse(result.problems, *loaded, options.json);
  if (auto problems = estimate::check_measurable(*result.plan); !problems.empty()) {
    locate(problems, loaded->origins);
    return refuse(problems, *loaded, options.json);
  }
  need_calibration_file();
  const int world = result.plan->mesh.world_size();
  const int local = std::min(world, options.gpus_per_node.value_or(world));
  const int ranks = std::min(local, std::max(1, cores / estimate::threads_of_rank(local)));
  auto overrides = options.overrides;
  if (const auto& batch = result.plan->batch; batch.length == 0)  // the ranks do not look at the rows
    overrides.push_back(fmt::format("distributed.pipeline.pp_seq_len={}", batch.planned_length()));
  const int failed = launch::run_ranks(launch::Work::kCalibrate, ranks, options.recipe, overrides);
  if (failed != 0 || ranks > 1 || world == 1) return failed;
  return launch::run_ranks(launch::Work::kCalibrateLinks, 2, "", {});
}

/// Rejects options that would have no effect.
void check_plan_options(const Options& options) {
  if (options.verbose && (options.json || options.search || options.compare_schedules || options.failures))
    throw wrong_words("--verbose shows more of a plan's text",
                      "leave it out: --json has everything, tables are complete");
  if (options.failures && (options.search || options.compare_schedules || !options.timeline.empty() ||
                           !options.trace.empty() || !options.html.empty() || !options.actions.empty()))
    throw wrong_words("--failures prints its own table",
                      "leave out --search, --compare-schedules, --timeline, --trace and --html");
  if (options.compare_schedules &&
      (options.search || !options.trace.empty() || !options.html.empty() || !options.actions.empty()))
    throw wrong_words("--compare-schedules cannot be combined with --search, --trace, --html or --actions",
                      "leave them out, or run --compare-schedules separately");
  if (!options.diff.empty() &&
      (options.search || options.compare_schedules || options.failures || options.verbose || options.require_fit ||
       !options.timeline.empty() || !options.trace.empty() || !options.html.empty() || !options.actions.empty() ||
       options.print_recipe || options.calibrate))
    throw wrong_words("--diff prints its own tables",
                      "leave out the options that print, draw or check one plan; '--json' can be combined with it");
  if (options.from.empty() &&
      (options.print_recipe || options.allow_inexact || !options.arguments.empty() || !options.model.empty() ||
       options.seq_length || options.vocab_size || !options.accept_optimizer.empty()))
    throw wrong_words(
        "--print-recipe, --allow-inexact, --model, --seq-length, --vocab-size, --accept-optimizer and "
        "words after '--' are about another trainer's configuration",
        "add '--from FORMAT FILE', or override keys of the recipe");
  if (!options.from.empty() && options.calibrate)
    throw wrong_words("--calibrate measures this machine with a recipe",
                      "print the recipe with --print-recipe, and calibrate that");
  if (!options.search && !options.apply.empty())
    throw wrong_words("--apply writes the best plan of a search", "add --search, or leave --apply out");
  if (options.search &&
      (!options.timeline.empty() || !options.trace.empty() || !options.html.empty() || !options.actions.empty()))
    throw wrong_words("--search cannot be combined with --timeline, --trace, --html or --actions",
                      "write the best plan to a recipe with '--apply FILE.yaml', and plan that");
  std::error_code error;
  if (!options.apply.empty() && std::filesystem::equivalent(options.apply, options.recipe, error))
    throw wrong_words(fmt::format("--apply would overwrite the recipe '{}'", options.recipe), "give another file");
}

}  // namespace

int run_plan(const Options& given) {
  const auto options = with_keys(given);
  check_plan_options(options);
  if (options.recipe.empty() && options.from.empty()) {
    if (const int failed = calibrate(options, nullptr); failed != 0) return failed;
    const auto made = estimate::own_calibration(estimate::machine_name());
    options.json ? out(estimate::to_json(made)) : say(estimate::to_text(made));
    return code(ExitCode::kOk);
  }
  const auto source = options.from.empty() ? FromRecipe{.loaded = load(options)} : load_from(options);
  if (source.exit) return *source.exit;
  const auto& loaded = source.loaded;
  if (!loaded.problems.empty()) return refuse(loaded.problems, loaded, options.json, source.json);
  if (options.calibrate) {
    if (const int failed = calibrate(options, &loaded); failed != 0) return failed;
    if (!options.json) err(estimate::to_text(estimate::own_calibration(estimate::machine_name())));
  }
  const PlanningMachine machine(options);
  const auto& request = machine.request();
  if (options.failures) return plan_failures(options, loaded, request);
  if (options.compare_schedules) return compare_schedules(options, loaded, request);
  if (options.search) return run_search(options, loaded, request);
  auto result = plan_of(options, loaded, request);
  if (!result.plan) return refuse(result.problems, loaded, options.json, source.json);
  const auto& plan = *result.plan;
  if (!options.diff.empty()) return print_diff(options, loaded, plan, request);
  if (plan.pipeline && !options.timeline.empty()) write_file(options.timeline, draw(plan));
  if (plan.pipeline && !options.trace.empty()) write_file(options.trace, trace_of(plan));
  if (!options.html.empty())
    if (const auto document = plan_document(options, plan, loaded, source.json); document.exit == 0)
      write_file(options.html,
                 report::plan_page(fmt::format("Plan of {}", loaded.path), document.text, trace_of(plan)));
  if (options.json) {
    const auto document = plan_document(options, plan, loaded, source.json);
    out(document.text);
    return document.exit;
  }
  // Of a recipe that was made from another trainer's file, nobody has seen the lines.
  if (options.from.empty())
    err(to_text(plan.warnings, "warning"));
  else
    for (const auto& warning : plan.warnings) show(warning, loaded, "warning");
  err(to_text(untrainable(loaded), "warning"));
  const auto unfit = check_fit(options, plan), missing = check_files(options, plan, loaded);
  const auto detail = options.verbose ? estimate::Detail::kFull : estimate::Detail::kBrief;
  say(report::to_text(plan, action_format(options), detail));
  say(source.ignored);
  if (!options.verbose && plan.estimate)
    say(fmt::format("more      {}--verbose: memory by rank and phase, FLOPs, traffic\n",
                    options.world_size || loaded.recipe.distributed->dp_size()
                        ? ""
                        : "--world-size N: more ranks than the recipe's sizes need; "));
  if (!options.no_files && is_elsewhere(plan, loaded)) say("files     not checked: the model is not on this machine\n");
  if (!missing.empty()) return refuse(missing, loaded, false);
  return unfit.empty() ? code(ExitCode::kOk) : refuse(unfit, loaded, false);
}

}  // namespace automodel::app
