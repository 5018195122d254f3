// The plan as JSON (docs/plan-json.md).
#pragma once

#include <string>

#include "estimate/estimated_plan.h"

namespace automodel::report {

/// Which actions to list.
enum class ActionFormat { kNone, kCompute, kLowered };

/// One JSON object; existing keys do not change their meaning.
/// `from`: of `plan --from`, the JSON of the member of that name (foreign::to_json); empty: there is none.
std::string to_json(const estimate::EstimatedPlan& plan, ActionFormat actions, const std::string& from = "");
/// {"errors": [...]}, for a recipe that cannot be planned.
std::string errors_to_json(const Diagnostics& problems, const std::string& from = "");

}  // namespace automodel::report
