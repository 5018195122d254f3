// The plan as human-readable tables.
#pragma once

#include <string>

#include "estimate/estimated_plan.h"
#include "report/plan_json.h"

namespace automodel::report {

/// The verdict, then mesh, model, batch, stages of a pipeline, schedule, checks, memory, time, ignored keys: at most
/// about 30 lines for 8 stages. kFull adds FLOPs, microbatches in flight, memory by rank and phase, traffic by axis.
std::string to_text(const estimate::EstimatedPlan& plan, ActionFormat actions = ActionFormat::kNone,
                    estimate::Detail detail = estimate::Detail::kBrief);

}  // namespace automodel::report
