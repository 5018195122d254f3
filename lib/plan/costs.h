// The interface through which planning decisions query time and memory estimates; implemented by lib/estimate.
#pragma once

#include <algorithm>
#include <optional>
#include <string_view>
#include <vector>

#include "config/recipe.h"
#include "plan/balanced_split.h"
#include "plan/located.h"
#include "schedule/pipeline_costs.h"

namespace automodel::plan {

struct TrainingPlan;

/// Of a rank's capacity; a plan that needs more is tight.
inline constexpr double kTightShare = 0.9;

/// Peak bytes of every pipeline rank, and the capacity of one rank (empty if unknown).
struct PeakMemory {
  std::vector<double> ranks = {};
  std::optional<double> capacity = {};
  double heaviest() const { return *std::max_element(ranks.begin(), ranks.end()); }
  /// What a plan may need without being tight; 0 if the capacity is unknown.
  double usual() const { return kTightShare * capacity.value_or(0); }
};

/// Queried for a plan whose model, types, mesh and microbatches are already chosen.
class Costs {
 public:
  virtual ~Costs() = default;
  /// Whether `hardware.profile` names a GPU.
  virtual bool is_gpu(std::string_view profile) const = 0;
  /// How many ranks a machine holds. Microbatches need not be chosen yet.
  virtual int ranks_per_machine(const TrainingPlan& plan, const config::Recipe& recipe) = 0;
  /// Rejects recipe sections that describe an impossible machine.
  virtual void check_machine(const TrainingPlan& plan, const config::Recipe& recipe, Located& report) = 0;
  /// The costs that `layers_per_stage: auto` balances. Needs the plan's model and batch.
  virtual SplitCost layers(const TrainingPlan& plan, const config::Recipe& recipe) = 0;
  /// Needs the plan's stages.
  virtual PeakMemory memory(const TrainingPlan& plan, const config::Recipe& recipe) = 0;
  /// Seconds of a step. Needs the plan's stages.
  virtual double step(const TrainingPlan& plan, const config::Recipe& recipe) = 0;
  /// What a search for the order of the plan's stages weighs, in seconds and bytes, without a limit of memory. Needs
  /// the plan's stages.
  virtual schedule::PipelineCosts pipeline(const TrainingPlan& plan, const config::Recipe& recipe) = 0;
};

}  // namespace automodel::plan
