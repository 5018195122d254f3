// The duration of a step: computation and communication of every stage, simulated with the schedule.
//
// Model FLOPs of a step = 3 x (forward FLOPs of a token, arch::layer_flops_per_token, causal attention counted half) x
// tokens: the backward pass costs twice the forward pass, and recomputation is not counted. With adapters, matmuls with
// frozen weights count only 2 x, since they have no weight gradients. MFU = model FLOPs / (step time x peak rate x
// ranks).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "arch/layout.h"
#include "arch/model_spec.h"
#include "estimate/hardware.h"
#include "estimate/links.h"
#include "estimate/memory_plan.h"
#include "mesh/axis.h"
#include "plan/balanced_split.h"
#include "plan/training_plan.h"
#include "schedule/simulate.h"

namespace automodel::estimate {

/// Communication along one axis in a step.
struct AxisTraffic {
  mesh::AxisSet axis = {};
  int size = 1;
  LinkClass link = LinkClass::kNone;
  double bytes = 0;    ///< sent per step by the rank that sends most
  double seconds = 0;  ///< transfer time at full link bandwidth
  std::string_view what = {};
};

/// Seconds of one microbatch on a rank of the stage, including communication inside the stage (tp, cp, ep) and, in the
/// backward pass, that of recomputation.
struct StageTime {
  double forward = 0;
  double backward_input = 0;
  double backward_weight = 0;
  double backward = 0;  ///< both gradients in one pass
  double flops = 0;     ///< forward FLOPs per rank
};

struct TimePlan {
  std::vector<StageTime> stages = {};
  std::vector<AxisTraffic> traffic = {};
  schedule::Timeline timeline = {};  ///< of the step's last accumulation run, in seconds
  double schedule = 0;               ///< seconds spent in the schedule, over all accumulation runs
  double communication = 0;          ///< seconds of exposed data-parallel and tied-embedding communication
  double optimizer = 0;              ///< seconds
  double overhead = 0;               ///< seconds for reading batches, launching kernels
  double copies = 0;                 ///< seconds per step for copies in host memory
  double step = 0;                   ///< total seconds
  double flops = 0;                  ///< model FLOPs of a step
  double tokens_per_second = 0;      ///< over all ranks
  double mfu = 0;
  double bubble = 0;  ///< fraction of the schedule in which ranks are idle
};

/// Needs the plan's pipeline.
TimePlan plan_time(const plan::TrainingPlan& plan, const Hardware& hardware);

/// What the plan's stages and messages cost in its schedule, in seconds. Needs the plan's pipeline, whose order does
/// not matter.
schedule::Costs schedule_costs(const plan::TrainingPlan& plan, const Hardware& hardware);

/// Forward seconds of one picture through the towers of the plan whose outputs are cached.
double cached_tower_seconds(const plan::TrainingPlan& plan, const Hardware& hardware);

/// Forward plus backward cost of the layers, the embedding and the head, independent of their placement. Needs the
/// plan's model and batch.
plan::SplitCost split_cost(const plan::TrainingPlan& plan, const Hardware& hardware);

}  // namespace automodel::estimate
