// The estimated memory and time of a plan on a machine, together with the machine description.
#pragma once

#include <cstdint>
#include <string>

#include "base/json_writer.h"
#include "config/recipe.h"
#include "estimate/copy_plan.h"
#include "estimate/hardware.h"
#include "estimate/memory_plan.h"
#include "estimate/time_plan.h"
#include "plan/located.h"

namespace automodel::estimate {

/// Correction by past runs of the same plan (past_runs.h). With no runs, the estimate is uncorrected.
struct PastCorrection {
  int runs = 0;
  std::string when = {};   ///< date of the newest run
  double uncorrected = 0;  ///< seconds per step, as computed
  double seconds = 0;      ///< measured seconds per token, times the plan's tokens per step
  double bytes = 0;        ///< measured peak tensor bytes of the heaviest rank
};

struct Estimate {
  Hardware hardware = {};
  MemoryPlan memory = {};
  TimePlan time = {};
  std::optional<CopyPlan> copies = {};
  PastCorrection past = {};
  std::optional<std::int64_t> steps = {};  ///< of the run, if step_scheduler.max_steps says how many
  double run_hours() const { return static_cast<double>(steps.value_or(0)) * time.step / 3600; }
  /// Step time of the same plan in float32, relative to this one; 0: not requested or unknown.
  double float32_ratio = 0;
};

/// How much of an estimate is printed.
enum class Detail : std::uint8_t { kBrief, kFull };

/// Inputs of plan_hardware() besides the plan, whose mesh, types and microbatches must be chosen.
struct MachineRequest {
  std::optional<int> ranks_per_node = {};     ///< empty: what machines with this device usually have
  const Calibration* calibration = nullptr;   ///< of this machine
  std::optional<BFloat16Unit> bfloat16 = {};  ///< of its processor; empty: not determined
  std::string gpu = {};                       ///< its GPUs, as nvidia_gpu() names them
};
Hardware plan_hardware(const plan::TrainingPlan& plan, const config::Recipe& recipe, const MachineRequest& request,
                       Diagnostics& problems);
/// The estimates' inputs besides the plan, from the recipe and the machine.
MemoryRequest memory_request(const config::Recipe& recipe, const Hardware& hardware);
/// Estimates for a plan, which must have a pipeline.
Estimate make_estimate(const plan::TrainingPlan& plan, const config::Recipe& recipe, Hardware hardware);

/// The tables of `automodel plan`: memory by rank, phases of the heaviest rank, and step time with its components.
std::string to_text(const Estimate& estimate, const plan::TrainingPlan& plan, Detail detail = Detail::kFull);
/// Writes the members "hardware", "memory" and "time" into an open JSON object.
void write_members(JsonWriter& json, const Estimate& estimate, const plan::TrainingPlan& plan);

}  // namespace automodel::estimate
