// Everything that is set up before the model: the plan, the data, and the schedules of steps and learning rates.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "comm/world.h"
#include "config/recipe.h"
#include "data/loader.h"
#include "estimate/estimated_plan.h"
#include "plan/lr_schedule.h"
#include "train/step_scheduler.h"

namespace automodel::train {

/// Construction is collective; a problem on any rank ends the job. Throws Error (kBadInput and others).
struct Setup {
  Setup(const config::LoadedRecipe& loaded, comm::World& world);

  const config::LoadedRecipe& loaded;
  comm::World& world;
  std::optional<Diagnostic> device_note;  ///< a warning about the device that was chosen
  estimate::EstimatedPlan plan;           ///< where the recipe leaves the length of rows open, with that of the longest
  std::unique_ptr<data::Loader> loader;
  std::vector<std::pair<std::string, std::unique_ptr<data::Loader>>> validation;
  std::optional<StepScheduler> steps;
  std::optional<plan::LrSchedule> rates;

  const config::Recipe& recipe() const { return loaded.recipe; }
  std::uint64_t seed() const { return static_cast<std::uint64_t>(loaded.seed()); }
};

/// Collective. Throws Error on a rank with problems, which ends the job; the other ranks wait for that.
/// Missing source locations are looked up in the recipe.
void agree(comm::World& world, const config::LoadedRecipe& loaded, Diagnostics problems);

}  // namespace automodel::train
