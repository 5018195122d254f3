#include "plan_document.h"

#include <fmt/format.h>

#include "base/nvidia_driver.h"
#include "base/processor.h"
#include "estimate/disk_room.h"
#include "launch/train_command.h"
#include "preflight/preflight.h"
#include "report.h"
#include "report/plan_json.h"
#include "schedule/chrome_trace.h"

namespace automodel::app {

Document refused(const Diagnostics& problems, const std::string& from) {
  return {report::errors_to_json(problems, from) + "\n", code(exit_code(problems))};
}

PlanningMachine::PlanningMachine(const Options& options)
    : calibration_(estimate::parse_calibration(estimate::calibration_text())),
      request_{.world_size = options.world_size,
               .training = false,
               .cuda_available = launch::cuda_present(),
               .ranks_per_node = options.gpus_per_node,
               .calibration = calibration_ ? &*calibration_ : nullptr,
               .bfloat16 = processor().bfloat16,
               .gpu = nvidia_gpu()} {}

bool is_elsewhere(const estimate::EstimatedPlan& plan, const config::LoadedRecipe& loaded) {
  const auto& model = loaded.recipe.model();
  return !plan.model || (model && model->pretrained_model_name_or_path() && plan.model->folder.empty());
}

Diagnostics check_files(const Options& options, const estimate::EstimatedPlan& plan,
                        const config::LoadedRecipe& loaded) {
  return options.no_files || is_elsewhere(plan, loaded) ? Diagnostics{} : preflight::check_files(loaded, plan);
}

estimate::PlanResult plan_with_data(const Options& options, const config::LoadedRecipe& loaded,
                                    estimate::PlanRequest request) {
  auto result = estimate::make_plan(loaded, request);
  if (!result.plan || result.plan->batch.length > 0 || options.no_files || is_elsewhere(*result.plan, loaded))
    return result;
  request.longest_row = preflight::longest_row(loaded, *result.plan);
  return request.longest_row ? estimate::make_plan(loaded, request) : std::move(result);
}

estimate::PlanResult plan_of(const Options& options, const config::LoadedRecipe& loaded,
                             const estimate::PlanRequest& request) {
  auto result = plan_with_data(options, loaded, request);
  // A plan for GPUs on a machine without any, or of another trainer's file, is for a run on another machine.
  if (result.plan && !options.no_files && options.from.empty() && (!result.plan->cuda || launch::cuda_present()))
    for (auto& lacking : estimate::check_disk(*result.plan, loaded.recipe.checkpoint()))
      result.plan->warnings.push_back(lacking.at(loaded.origins.nearest(lacking.key)));
  return result;
}

Diagnostics check_fit(const Options& options, const estimate::EstimatedPlan& plan) {
  if (!options.require_fit || !plan.estimate) return {};
  const auto& memory = plan.estimate->memory;
  if (memory.fit == estimate::Fit::kUnknown)
    return {Diagnostic{"memory-unknown"}
                .says("the memory of the device is not known")
                .hint("give '--memory 80GiB' or hardware.profile")
                .of("hardware.memory")};
  if (auto lacking = estimate::check_capacity(memory)) return {*std::move(lacking)};
  return {};
}

Document plan_document(const Options& options, const estimate::EstimatedPlan& plan, const config::LoadedRecipe& loaded,
                       const std::string& from) {
  auto unfit = check_fit(options, plan);
  if (!unfit.empty()) return refused(unfit, from);
  const auto missing = check_files(options, plan, loaded);
  if (!missing.empty()) return refused(missing, from);
  return {report::to_json(plan, action_format(options), from) + "\n", code(ExitCode::kOk)};
}

std::string trace_of(const estimate::EstimatedPlan& plan) {
  if (!plan.pipeline) return "";
  return schedule::chrome_trace(plan.estimate ? plan.estimate->time.timeline : plan.pipeline->timeline,
                                plan.pipeline->name);
}

report::ActionFormat action_format(const Options& options) {
  return options.actions == "compute"   ? report::ActionFormat::kCompute
         : options.actions == "lowered" ? report::ActionFormat::kLowered
                                        : report::ActionFormat::kNone;
}

}  // namespace automodel::app
