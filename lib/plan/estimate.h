// What a plan costs on a machine: memory and time, with the machine that both are for.
#pragma once

#include <string>

#include "base/json_writer.h"
#include "config/recipe.h"
#include "plan/hardware.h"
#include "plan/memory_plan.h"
#include "plan/sharding.h"
#include "plan/time_plan.h"

namespace automodel::plan {

struct Estimate {
  Hardware hardware = {};
  Sharding sharding = {};
  config::ActivationCheckpointing recompute = config::ActivationCheckpointing::kOff;
  int moments = 2;
  MemoryPlan memory = {};
  TimePlan time = {};
};

/// Tensors that an optimizer keeps for each parameter.
int moments_of(const config::OptimizerConfig& optimizer);
/// Estimates for a plan that has a pipeline.
Estimate make_estimate(const TrainingPlan& plan, const config::Recipe& recipe, Hardware hardware);

/// The tables of `automodel plan`: memory by rank, phases of the heaviest, step time and what it is made of.
std::string to_text(const Estimate& estimate, const TrainingPlan& plan);
/// Writes the members "hardware", "memory" and "time" into an open object.
void write_members(JsonWriter& json, const Estimate& estimate);

}  // namespace automodel::plan
