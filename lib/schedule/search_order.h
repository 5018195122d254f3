// Searches the order with the shortest makespan for given costs under a limit of memory: the named schedules, building
// blocks and list schedules with many rules as starts, then local search on the critical path.
#pragma once

#include "schedule/compact_order.h"

namespace automodel::schedule {

struct FoundOrder {
  CompactOrder order = {};
  Units makespan = kNoLimit;
};

/// Deterministic: the amount of work depends on the sizes only, never on the time it takes. The workload's memory must
/// be at least least_memory(). Never longer than the best named schedule with the workload's placement that fits its
/// memory.
FoundOrder search_order(const Workload& workload);

}  // namespace automodel::schedule
