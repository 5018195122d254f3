// Communication of one rank for one decoder layer and microbatch: tensor, context and expert parallelism.
#pragma once

#include "config/distributed_config.h"
#include "estimate/links.h"
#include "plan/training_plan.h"

namespace automodel::estimate {

/// Exposed fraction of a tensor-parallel collective on a GPU when the recipe overlaps it with GEMMs. Fitted on
/// published runs (docs/estimates.md).
inline constexpr double kTensorExposed = 0.4;

struct Sent {
  double bytes = 0;
  double transfer = 0;  ///< seconds of transfer at full link bandwidth
  double exposed = 0;   ///< seconds, including waiting, that are not hidden behind compute
  Sent& operator+=(const Sent& other);
};
Sent operator+(Sent a, const Sent& b);

struct LayerTraffic {
  Sent tensor = {};
  Sent context = {};
  Sent experts = {};
  double exposed() const { return tensor.exposed + context.exposed + experts.exposed; }
  LayerTraffic& operator+=(const LayerTraffic& other);
};
struct LayerPasses {
  LayerTraffic forward = {};
  LayerTraffic backward = {};  ///< including forward communication repeated by recomputation
};
/// Needs the plan's model and batch.
LayerPasses layer_passes(const plan::TrainingPlan& plan, const Hardware& hardware, plan::Recompute recompute,
                         int layer);

/// Links of the context-parallel and expert groups.
LinkClass context_link(const plan::TrainingPlan& plan, const Hardware& hardware);
GroupLink expert_link(const plan::TrainingPlan& plan, const Hardware& hardware);

}  // namespace automodel::estimate
