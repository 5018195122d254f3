// The timeline of a pipeline's ranks in one step, next to the planned one.
#pragma once

#include <string>
#include <vector>

#include "comm/world.h"
#include "estimate/estimated_plan.h"
#include "pipeline/pipeline.h"

namespace automodel::train {

/// Records one step of a rank's row. An action lasts until the next one begins, so that waiting for a message
/// shows as a long RECV, or as part of the computation that needs it.
class RunTrace {
 public:
  /// `records`: this rank represents its stage (it is first on its data, context and tensor axes). Must outlive the
  /// pipeline's use.
  RunTrace(pipeline::Pipeline& pipeline, const estimate::EstimatedPlan& plan, int pp_rank, bool records);

  void begin_step();
  /// Call after a step to be traced: keeps what was recorded since begin_step().
  void end_step();
  /// Collective: returns Chrome trace events of the planned and the executed step on rank 0, "" elsewhere.
  std::string finish(comm::World& world) const;

 private:
  struct Mark {
    double seconds;
    schedule::Slot slot;
  };
  const estimate::EstimatedPlan& plan_;
  int pp_rank_;
  bool records_;
  bool on_ = false;
  double begin_ = 0, end_ = 0;
  std::vector<Mark> marks_ = {}, kept_ = {};
};

}  // namespace automodel::train
