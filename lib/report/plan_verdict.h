// A plan in one line.
#pragma once

#include <string>

#include "estimate/estimated_plan.h"

namespace automodel::report {

/// Whether the plan fits in memory, its speed, and what most of a step's time goes to: "fits, 314 MiB of 11.8 GiB;
/// 5.47 K tokens/s; slowest part: computation (78%), then pipeline waits (21%)".
std::string verdict(const estimate::EstimatedPlan& plan);

}  // namespace automodel::report
