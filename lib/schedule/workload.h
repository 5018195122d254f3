// Costs and memory of a pipeline in whole units, for algorithms whose result must be the same on every machine.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "schedule/action.h"
#include "schedule/placement.h"

namespace automodel::schedule {

using Units = std::int64_t;
/// No limit; far from overflow when added to a sum of costs.
inline constexpr Units kNoLimit = std::numeric_limits<Units>::max() / 4;

struct Workload {
  Placement placement = {};
  int microbatches = 1;
  // By stage.
  std::vector<Units> forward = {}, backward_input = {}, backward_weight = {};
  std::vector<Units> activation = {};  ///< held from the start of F to the end of I ...
  std::vector<Units> kept = {};        ///< ... and of that, what is held until the end of W
  std::vector<Units> message = {};     ///< by edge, from stage s to s + 1 or back; 0 between stages on the same rank
  Units memory = kNoLimit;             ///< of a rank, over its stages and microbatches ...
  std::vector<Units> standing = {};    ///< ... and of that, what each rank always holds; empty: nothing

  /// What a rank's activations may take; kNoLimit without a limit.
  Units room(int rank) const {
    return memory >= kNoLimit || standing.empty() ? memory : memory - standing[static_cast<std::size_t>(rank)];
  }
  int ranks() const { return placement.ranks(); }
  int stages() const { return placement.stages(); }
  Shape shape() const { return {ranks(), stages(), microbatches}; }
  /// F, I and W of all microbatches and stages of a rank.
  Units work(int rank) const;
};

/// F = I = W = 1, free messages, and one unit of memory per stage and microbatch, held until the end of W.
Workload unit_workload(const Placement& placement, int microbatches);

/// When the first microbatch could start F and I of each stage if no rank were ever busy.
struct Heads {
  std::vector<Units> forward = {}, backward_input = {};
};
Heads heads_of(const Workload& workload);

/// The least `memory` with which one microbatch passes every rank: below it there is no table.
Units least_memory(const Workload& workload);

/// A makespan that no table can beat, from the work of the ranks, the time before a rank can start, and how long memory
/// is held. Usually not reached.
Units lower_bound(const Workload& workload);

}  // namespace automodel::schedule
