// Searches the order with the shortest makespan for given costs under a limit of memory: the named schedules, building
// blocks and list schedules with many rules as starts, then local search on the critical path.
#pragma once

#include "schedule/workload.h"

namespace automodel::schedule {

/// A table of F, I and W, and B where the first stage does both gradients at once. Deterministic: the amount of work
/// depends on the sizes only, never on the time it takes. The workload's memory must be at least least_memory(). Never
/// longer than the best named schedule with the workload's placement that fits its memory.
Schedule search_order(const Workload& workload);

}  // namespace automodel::schedule
