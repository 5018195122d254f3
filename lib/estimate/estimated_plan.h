// A recipe's plan together with its estimated cost, as printed by commands and compared with runs.
#pragma once

#include <optional>

#include "estimate/estimate.h"
#include "plan/training_plan.h"

namespace automodel::estimate {

/// What caching the outputs of a frozen tower costs, and what it saves.
struct FeatureCosts {
  double once = 0;      ///< seconds of computing a picture, on one rank
  double file = 0;      ///< bytes of a picture in the cache
  double step = 0;      ///< seconds, the other way: without the cache if the plan has one, with it otherwise
  double peak = 0;      ///< bytes of the heaviest rank, the other way
  double pictures = 0;  ///< in the cache; 0: not known
  double bytes = 0;     ///< of the cache; 0: not known
};

struct EstimatedPlan : plan::TrainingPlan {
  explicit EstimatedPlan(plan::TrainingPlan plan);
  ~EstimatedPlan();
  EstimatedPlan(const EstimatedPlan&);
  EstimatedPlan(EstimatedPlan&&) noexcept;
  EstimatedPlan& operator=(const EstimatedPlan&);
  EstimatedPlan& operator=(EstimatedPlan&&) noexcept;

  std::optional<Estimate> estimate = {};           ///< present if there is a pipeline
  std::optional<FeatureCosts> feature_costs = {};  ///< with `features` and `estimate`, if asked for
};

struct PlanRequest {
  std::optional<int> world_size = {};  ///< empty: the product of the recipe's sizes
  bool training = false;               ///< reject what can be planned but not trained
  bool cuda_available = false;
  std::optional<std::int64_t> longest_row = {}, longest_validation_row = {};  ///< as in plan::PlanRequest
  plan::FeatureRequest features = {};                                         ///< as there
  bool compares_features = true;              ///< fill EstimatedPlan::feature_costs, which takes a second plan
  std::optional<int> ranks_per_node = {};     ///< empty: what machines with this device usually have
  const Calibration* calibration = nullptr;   ///< of this machine
  std::optional<BFloat16Unit> bfloat16 = {};  ///< of this machine's processor; empty: not determined
  std::string gpu = {};                       ///< this machine's GPUs, as nvidia_gpu() names them
  MachineRequest machine() const { return {ranks_per_node, calibration, bfloat16, gpu}; }
};

struct PlanResult {
  std::optional<EstimatedPlan> plan = {};
  Diagnostics problems = {};  ///< empty if there is a plan
  Diagnostics warnings = {};
};

/// plan::make_plan() with costs from these estimates. Past runs of the same plan on this machine correct the estimate.
PlanResult make_plan(const config::LoadedRecipe& recipe, const PlanRequest& request);

}  // namespace automodel::estimate
