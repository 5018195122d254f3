// Compares a run's plan with its measurements: for the line at the run's end, and for estimate.json.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "comm/world.h"
#include "estimate/estimated_plan.h"
#include "estimate/memory_plan.h"

namespace automodel::train {

/// Collects measurements over a run; one object per rank.
class RunEstimate {
 public:
  RunEstimate(const estimate::EstimatedPlan& plan, int pp_rank) : plan_(plan), pp_rank_(pp_rank) {}

  /// Call when a phase of the run ends: the peak since the last such call is attributed to it.
  void end_phase(estimate::Phase phase);
  /// Call when a step ends. `tokens`: of the global batch, without padding.
  void add_step(double seconds, std::int64_t tokens);
  /// Collective. On rank 0 sets `json` to the record and returns a line for people, which is empty if the machine was
  /// neither calibrated nor corrected by past runs: the plan's rates were then a guess. Both are empty on other ranks,
  /// and if the plan has no estimate or fewer than 3 steps were made (the first one warms up).
  std::string finish(comm::World& world, std::string& json) const;

 private:
  /// Predicted tensor bytes.
  double tensors(int pp_rank, std::size_t phase) const;

  const estimate::EstimatedPlan& plan_;
  int pp_rank_;
  std::vector<double> steps_ = {};
  std::vector<double> tokens_ = {};
  std::array<std::int64_t, estimate::kPhaseCount> peaks_ = {};  ///< 0: the phase did not occur
};

}  // namespace automodel::train
