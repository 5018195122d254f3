// What decisions ask of estimates. lib/estimate answers; a decision may know no more of time and memory than this.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "config/recipe.h"
#include "plan/balanced_split.h"
#include "plan/located.h"

namespace automodel::plan {

struct TrainingPlan;

/// Bytes of every pipeline rank at its peak, and how many a rank has; absent where nobody knows.
struct PeakMemory {
  std::vector<double> ranks = {};
  std::optional<double> capacity = {};
};

/// Of one plan: what is asked for once its model, types, mesh and microbatches are chosen.
class Costs {
 public:
  virtual ~Costs() = default;
  /// Whether `hardware.profile` names a GPU.
  virtual bool is_gpu(std::string_view profile) const = 0;
  /// Refuses sections of the recipe that describe a machine which cannot be.
  virtual void check_machine(const TrainingPlan& plan, const config::Recipe& recipe, Located& report) = 0;
  /// What `layers_per_stage: auto` balances. Needs the plan's model and batch.
  virtual SplitCost layers(const TrainingPlan& plan, const config::Recipe& recipe) = 0;
  /// Needs the plan's stages.
  virtual PeakMemory memory(const TrainingPlan& plan, const config::Recipe& recipe) = 0;
};

}  // namespace automodel::plan
