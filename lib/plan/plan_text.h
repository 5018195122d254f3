// The plan as tables for people.
#pragma once

#include <string>

#include "plan/plan_json.h"
#include "plan/training_plan.h"

namespace automodel::plan {

/// At most about 40 lines for 8 stages: mesh, batch, stages, schedule, checks, what is ignored.
std::string to_text(const TrainingPlan& plan, ActionFormat actions = ActionFormat::kNone);

}  // namespace automodel::plan
