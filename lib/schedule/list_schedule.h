// List scheduling: whenever a rank is free, it starts the most urgent step whose data is there.
#pragma once

#include "schedule/compact_order.h"

namespace automodel::schedule {

/// What is urgent. Steps of early microbatches come first; within a microbatch, steps that can start early.
struct ListRule {
  /// Input gradients count as due at this many halves of their earliest start; negative: before all forwards.
  int backward_due = -1;
  /// Instead of starting a W, a rank waits for an F or I that is known to come within this many halves of W's duration.
  int patience = 0;
  /// Microbatches start at least this many quarters of the heaviest rank's work per microbatch apart.
  int pace = 0;
  bool deep_forwards = false;  ///< among forwards, those of late stages first
  /// A rank's first stage does not start a forward if a step of its other stages, or an I, is known to come before it
  /// would end.
  bool give_way = false;
};

/// An order that keeps the workload's limit of memory, which must be at least least_memory(). A forward starts only if
/// earlier microbatches can still pass all stages of the rank, so some step can always start.
CompactOrder list_schedule(const ListRule& rule, const Workload& workload);

}  // namespace automodel::schedule
