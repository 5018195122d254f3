// `pp_schedule: searched`: the fastest order of a plan's stages for its estimated times and memory.
#pragma once

#include <optional>

#include "plan/costs.h"
#include "plan/training_plan.h"

namespace automodel::plan {

/// What a plan needs with a schedule.
struct ScheduleNeeds {
  double step = 0;    ///< seconds
  double memory = 0;  ///< peak bytes of the heaviest rank
  bool fits = true;   ///< in the limit

  bool better_than(const ScheduleNeeds& other) const {
    if (fits != other.fits) return fits;
    return fits ? step < other.step : memory < other.memory;
  }
};

/// A pipeline with the order that was found.
struct FoundSchedule {
  PipelinePlan pipeline = {};
  ScheduleNeeds needs = {};
};

/// For the stages and the placement of the plan's pipeline, whose order only matters as one that is possible. The limit
/// of memory is `distributed.pipeline.search.memory_limit`, else 90 % of the device's memory, above which a plan counts
/// as tight, else what the fastest named schedule needs. Never slower, by the estimate, than a named schedule with this
/// placement that keeps the limit. Reports "bad-value" and "schedule-memory-limit" for the recipe's limit; without one
/// the result may not fit.
std::optional<FoundSchedule> fastest_schedule(TrainingPlan& plan, const config::LoadedRecipe& recipe, Costs& costs,
                                              Located& report);

}  // namespace automodel::plan
