// The plan as human-readable tables.
#pragma once

#include <string>

#include "estimate/estimated_plan.h"
#include "report/plan_json.h"

namespace automodel::report {

/// At most about 40 lines for 8 stages: mesh, batch, stages, schedule, checks, ignored keys.
std::string to_text(const estimate::EstimatedPlan& plan, ActionFormat actions = ActionFormat::kNone);

}  // namespace automodel::report
