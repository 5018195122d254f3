// Corrects a plan's estimate by times of past runs of the same plan on this machine.
#pragma once

#include <string>

#include "estimate/estimated_plan.h"

namespace automodel::estimate {

/// A key shared by plans that should take the same time on the same machine: covers every decision that affects time
/// (plan/facts.h), the length of rows if the recipe specifies it, and the machine. 16 hexadecimal digits.
std::string run_key(const EstimatedPlan& plan);

/// Reports why the plan's model cannot be measured on this machine: missing-key (its sizes are unknown), no-device (the
/// plan is for GPUs, but only the CPU can be measured).
Diagnostics check_measurable(const plan::TrainingPlan& plan);

/// Sets the estimate's time per token to the median of past runs, scales its components in proportion, and records this
/// in `past`. No effect without such runs.
void apply_past_runs(const Calibration& calibration, EstimatedPlan& plan);

}  // namespace automodel::estimate
