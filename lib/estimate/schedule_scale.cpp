#include "estimate/schedule_scale.h"

#include <algorithm>

#include "base/error.h"
#include "schedule/lower.h"
#include "schedule/simulate.h"

namespace automodel::estimate {
namespace {

/// The number of microbatches to simulate: enough to fill the pipeline.
int simulated_microbatches(const schedule::Generator& generator, schedule::Request request) {
  const int all = request.microbatches;
  for (const int rounds : {4, 3, 2}) {
    request.microbatches = rounds * request.ranks;
    if (request.microbatches < all && schedule::check_request(generator, request).empty()) return request.microbatches;
  }
  return all;
}

}  // namespace

ScheduleScale ScheduleScales::of(const schedule::Generator& generator, const schedule::Request& request) {
  auto part = request;
  part.microbatches = simulated_microbatches(generator, request);
  const auto [found, fresh] = simulated_.try_emplace({&generator, part.ranks, part.stages_per_rank, part.microbatches},
                                                     Simulated{.idle = 0, .in_flight = 1});
  if (fresh) {
    const auto shape = part.shape();
    const auto placement = schedule::make_placement(generator.placement, part.ranks, part.stages());
    const auto lowered = schedule::lower(schedule::generate(generator, part), placement, shape);
    AUTOMODEL_CHECK(lowered.problems.empty(), "a schedule of the table deadlocks");
    const auto timeline = schedule::simulate(lowered.schedule, placement, shape, schedule::unit_costs(shape.stages));
    double busy = 0, kept = 0;
    for (const auto& rank : timeline.ranks) {
      busy = std::max(busy, rank.busy);
      kept = std::max(kept, static_cast<double>(rank.peak_in_flight));
    }
    found->second = {.idle = timeline.makespan - busy, .in_flight = kept};
  }
  const auto& [idle, in_flight] = found->second;
  const double busy = 3.0 * request.stages_per_rank * request.microbatches;
  return {.bubble = idle / (busy + idle), .in_flight = in_flight};
}

}  // namespace automodel::estimate
