#include <fmt/format.h>

#include "base/bytes.h"
#include "commands.h"
#include "launch/train_command.h"
#include "plan/plan_json.h"
#include "plan/plan_text.h"
#include "plan/training_plan.h"
#include "report.h"
#include "schedule/chrome_trace.h"
#include "schedule/timeline_svg.h"

namespace automodel::app {

namespace {

/// --memory is another spelling of a recipe key.
Options with_memory(Options options) {
  if (!options.memory.empty()) options.overrides.push_back("hardware.memory=" + options.memory);
  return options;
}

/// What keeps a plan from fitting, where it does not.
Diagnostics check_fit(const plan::TrainingPlan& plan) {
  if (!plan.estimate) return {};
  const auto& memory = plan.estimate->memory;
  const auto& rank = memory.ranks[static_cast<std::size_t>(memory.heaviest)];
  if (memory.fit == plan::Fit::kUnknown)
    return {{"memory-unknown",
             "nobody says how much memory the device has",
             "give --memory 80GiB or hardware.profile",
             {},
             "hardware.memory"}};
  if (memory.fit != plan::Fit::kDoesNotFit) return {};
  return {{"does-not-fit",
           fmt::format("pp rank {} needs {} at its peak ({}); there are {}", rank.pp_rank,
                       format_bytes(rank.most().total()), plan::name_of(rank.peak), format_bytes(*memory.capacity)),
           "automodel plan RECIPE --search names plans that fit",
           {},
           "hardware.memory"}};
}

}  // namespace

int run_plan(const Options& options) {
  const auto loaded = load(with_memory(options));
  if (!loaded.problems.empty()) return refuse(loaded.problems, loaded, options.json);
  const auto result = plan::make_plan(loaded, {.world_size = options.world_size,
                                               .training = false,
                                               .cuda_available = launch::cuda_present(),
                                               .ranks_per_node = options.gpus_per_node,
                                               .calibration = plan::read_calibration(plan::calibration_path())});
  if (!result.plan) return refuse(result.problems, loaded, options.json);
  const auto& plan = *result.plan;
  const auto format = options.actions == "compute"   ? plan::ActionFormat::kCompute
                      : options.actions == "lowered" ? plan::ActionFormat::kLowered
                                                     : plan::ActionFormat::kNone;
  if (plan.pipeline && !options.timeline.empty() &&
      !write_file(options.timeline,
                  schedule::timeline_svg(plan.pipeline->timeline, {.title = plan.pipeline->name, .in_seconds = false})))
    return code(ExitCode::kEnvironment);
  if (plan.pipeline && !options.trace.empty() &&
      !write_file(options.trace,
                  schedule::chrome_trace(plan.estimate ? plan.estimate->time.timeline : plan.pipeline->timeline,
                                         plan.pipeline->name)))
    return code(ExitCode::kEnvironment);
  if (!options.json) err(to_text(plan.warnings, "warning"));
  const auto unfit = options.require_fit ? check_fit(plan) : Diagnostics{};
  if (!unfit.empty() && options.json) return refuse(unfit, loaded, true, ExitCode::kRefused);
  out(options.json ? plan::to_json(plan, format) + "\n" : plan::to_text(plan, format));
  return unfit.empty() ? code(ExitCode::kOk) : refuse(unfit, loaded, false, ExitCode::kRefused);
}

}  // namespace automodel::app
