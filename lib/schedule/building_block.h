// Orders made by repeating one pattern, the building block of "Pipeline Parallelism with Controllable Memory" (arXiv
// 2405.15362): when each stage starts F and I of a microbatch, repeated at a fixed interval. How long a microbatch's
// activations live, divided by the interval, is how many are held at once.
#pragma once

#include <vector>

#include "schedule/compact_order.h"

namespace automodel::schedule {

struct BuildingBlock {
  // By stage; they respect the dependencies of the steps.
  std::vector<Units> forward = {}, backward_input = {};
  Units interval = 1;  ///< between the starts of two microbatches
  /// While a rank would be idle, it may start microbatches of its first stage ahead of their turn if memory allows.
  bool early_forwards = true;
};

/// Every rank does F and I in the order of the repeated block, each as early as possible; W fills the gaps, or makes
/// room for a forward. Once a rank has no forwards left, it takes its input gradients as they come. Memory stays within
/// the workload's limit, or within what the block itself needs if that is more.
CompactOrder squeeze(const BuildingBlock& block, const Workload& workload);

}  // namespace automodel::schedule
