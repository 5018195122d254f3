// A plan as `plan` makes it, for the command and for the pages that show it.
#pragma once

#include <optional>
#include <string>

#include "config/recipe.h"
#include "estimate/estimated_plan.h"
#include "options.h"
#include "report/plan_json.h"

namespace automodel::app {

/// One JSON document with a line break, and the exit code that says the same.
struct Document {
  std::string text = {};
  int exit = 0;
};

/// {"errors": [...]}.
Document refused(const Diagnostics& problems, const std::string& from = "");

/// What planning knows of this machine.
class PlanningMachine {
 public:
  explicit PlanningMachine(const Options& options);
  PlanningMachine(const PlanningMachine&) = delete;
  PlanningMachine& operator=(const PlanningMachine&) = delete;
  const estimate::PlanRequest& request() const { return request_; }

 private:
  std::optional<estimate::Calibration> calibration_;
  estimate::PlanRequest request_;
};

/// The plan; where only the data tells how long rows are, and it can be read in passing, for its longest row.
estimate::PlanResult plan_with_data(const Options& options, const config::LoadedRecipe& loaded,
                                    estimate::PlanRequest request);
/// The same, with a warning if its checkpoints exceed the disk.
estimate::PlanResult plan_of(const Options& options, const config::LoadedRecipe& loaded,
                             const estimate::PlanRequest& request);
/// Whether model and data are on another machine, as with a model that only the catalogue knows.
bool is_elsewhere(const estimate::EstimatedPlan& plan, const config::LoadedRecipe& loaded);
/// What a run of the plan would reject before its first step.
Diagnostics check_files(const Options& options, const estimate::EstimatedPlan& plan,
                        const config::LoadedRecipe& loaded);
/// Why the plan does not fit, if --require-fit asks.
Diagnostics check_fit(const Options& options, const estimate::EstimatedPlan& plan);

/// `plan --json` of a plan that could be made.
Document plan_document(const Options& options, const estimate::EstimatedPlan& plan, const config::LoadedRecipe& loaded,
                       const std::string& from = "");
/// --actions.
report::ActionFormat action_format(const Options& options);
/// `plan --trace`; empty without a pipeline.
std::string trace_of(const estimate::EstimatedPlan& plan);

}  // namespace automodel::app
