// The plan as JSON (docs/plan-json.md).
#pragma once

#include <string>

#include "estimate/estimated_plan.h"

namespace automodel::report {

/// Which actions to list.
enum class ActionFormat { kNone, kCompute, kLowered };

/// One JSON object; existing keys do not change their meaning.
std::string to_json(const estimate::EstimatedPlan& plan, ActionFormat actions);
/// {"errors": [...]}, for a recipe that cannot be planned.
std::string errors_to_json(const Diagnostics& problems);

}  // namespace automodel::report
