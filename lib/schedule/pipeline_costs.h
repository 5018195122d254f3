// What a schedule costs by the numbers that a user gives: times, messages and memory by stage, in any unit.
#pragma once

#include <optional>
#include <vector>

#include "base/diagnostic.h"
#include "schedule/simulate.h"
#include "schedule/workload.h"

namespace automodel::schedule {

struct PipelineCosts {
  // By stage.
  std::vector<double> forward = {}, backward_input = {}, backward_weight = {};
  std::vector<double> activation = {};  ///< of one microbatch, from the start of F to the end of I ...
  std::vector<double> kept = {};        ///< ... and of that, what stays until the end of W
  double message = 0;                   ///< time between stages on different ranks; costs the sender nothing
  std::optional<double> memory = {};    ///< limit of what a rank holds: its activations ...
  std::vector<double> standing = {};    ///< ... and, by rank, what it always holds; empty: nothing
};
/// F = I = W = activation = kept = 1 on every stage, free messages, no limit.
PipelineCosts even_costs(int stages);

/// Problems of the numbers: "schedule-costs" (one number or a list with one per stage; finite, none negative, not all
/// times zero; `kept` within `activation`), "schedule-memory-limit" (less than one microbatch needs on some rank).
Diagnostics check_costs(const PipelineCosts& costs, const Placement& placement);

/// What one microbatch needs on a rank, with what that holds anyway: below this there is no table.
double least_memory(const PipelineCosts& costs, const Placement& placement, int rank);

/// Costs in whole units. Decimal fractions of up to six places are exact; other times are rounded to a millionth of
/// the largest. Memory is exact to 1e-9 of the limit.
struct ScaledWorkload {
  Workload work = {};
  double unit = 1;  ///< one unit of time, in the unit of the costs
};
ScaledWorkload scaled(const PipelineCosts& costs, const Placement& placement, int microbatches);

/// A makespan that no table can beat, in the unit of the costs.
double lower_bound(const PipelineCosts& costs, const Placement& placement, int microbatches);

/// The table's computations, each as early as its rank and its data allow; a full backward takes the time of both
/// gradients. Unlike simulate(), messages need no posted receive. `order` must be valid and terminate.
Timeline earliest_times(const Schedule& order, const Placement& placement, const Shape& shape,
                        const PipelineCosts& costs);

/// The most that each rank holds at once.
std::vector<double> peak_activations(const Schedule& order, const PipelineCosts& costs);

}  // namespace automodel::schedule
