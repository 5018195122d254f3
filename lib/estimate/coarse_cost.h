// Closed-form estimate of a plan's time and memory, without running the schedule, for ranking search candidates.
#pragma once

#include <cstdint>
#include <optional>

#include "arch/layout.h"
#include "arch/model_spec.h"
#include "estimate/hardware.h"
#include "estimate/schedule_scale.h"
#include "estimate/state_bytes.h"
#include "mesh/mesh_sizes.h"
#include "plan/sharding.h"
#include "plan/training_plan.h"

namespace automodel::estimate {

struct CoarseRequest {
  const arch::ModelSpec* spec = nullptr;
  const arch::Layout* layout = nullptr;
  mesh::MeshSizes sizes = {};
  plan::Sharding sharding = {};
  plan::TypePlan types = {};
  StateBytes bytes = {};
  bool overlapped = false;  ///< the recipe overlaps tensor-parallel communication
  Hardware hardware = {};
  bool cuda = true;
  std::int64_t sequence = 1;
  int microbatch = 1;
  int microbatches = 1;  ///< per step and data-parallel rank
  ScheduleScale schedule = {};
  int stages_per_rank = 1;
  plan::Recompute recompute = plan::Recompute::kNone;
  plan::LossPlan loss = {};
  double moments = 2;  ///< optimizer state tensors per trained parameter, on average
  double trained = 1;  ///< fraction of the parameters that is trained; frozen weights have no gradients
};
struct CoarseCost {
  double step = 0;    ///< seconds
  double memory = 0;  ///< bytes of the heaviest rank
};
/// Both are meant to be within a third of plan_memory() and plan_time(), the actual estimates.
CoarseCost coarse_cost(const CoarseRequest& request);

}  // namespace automodel::estimate
