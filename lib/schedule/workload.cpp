#include "schedule/workload.h"

#include <algorithm>
#include <cmath>

namespace automodel::schedule {
namespace {

/// The most forward work that fits in a rank's memory before the first input gradient frees any.
double most_forward_work(const Workload& work, Units room, const std::vector<Stage>& stages) {
  if (room >= kNoLimit) return static_cast<double>(kNoLimit);
  double most = 0;
  for (const Stage stage : stages) {
    const double activations = static_cast<double>(room) / static_cast<double>(work.activation[stage.at()]);
    // With several stages this is the relaxed knapsack: all memory for the stage with the most work per byte.
    const double forwards = stages.size() == 1 ? std::floor(activations * (1 + 1e-12)) : activations;
    most = std::max(most, forwards * static_cast<double>(work.forward[stage.at()]));
  }
  return std::isfinite(most) ? most : static_cast<double>(kNoLimit);
}

/// Memory times the time for which one microbatch holds it at least, over the rank's stages.
double memory_time(const Workload& work, const Heads& heads, const std::vector<Stage>& stages) {
  double sum = 0;
  for (const Stage stage : stages) {
    const std::size_t s = stage.at();
    const Units held = heads.backward_input[s] + work.backward_input[s] - heads.forward[s];
    sum += static_cast<double>(work.activation[s]) * static_cast<double>(held) +
           static_cast<double>(work.kept[s]) * static_cast<double>(work.backward_weight[s]);
  }
  return sum;
}

/// Of a rank's memory, what a single stage that keeps everything until W can use: whole microbatches.
Units usable_memory(const Workload& work, Units room, const std::vector<Stage>& stages) {
  const std::size_t first = stages.front().at();
  const bool whole = stages.size() == 1 && work.kept[first] == work.activation[first] && work.activation[first] > 0;
  return whole ? room / work.activation[first] * work.activation[first] : room;
}

}  // namespace

Units Workload::work(int rank) const {
  Units sum = 0;
  for (const Stage stage : placement.stages_of(rank))
    sum += forward[stage.at()] + backward_input[stage.at()] + backward_weight[stage.at()];
  return sum * microbatches;
}

Workload unit_workload(const Placement& placement, int microbatches) {
  const auto stages = static_cast<std::size_t>(placement.stages());
  Workload out{placement, microbatches};
  out.forward = out.backward_input = out.backward_weight = out.activation = out.kept = std::vector<Units>(stages, 1);
  out.message.assign(stages - 1, 0);
  return out;
}

Heads heads_of(const Workload& work) {
  const auto stages = static_cast<std::size_t>(work.stages());
  Heads out{std::vector<Units>(stages), std::vector<Units>(stages)};
  Units now = 0;
  for (std::size_t s = 0; s < stages; ++s) {
    out.forward[s] = now;
    now += work.forward[s] + (s + 1 < stages ? work.message[s] : 0);
  }
  for (std::size_t s = stages; s-- > 0;) {
    out.backward_input[s] = now;
    now += work.backward_input[s] + (s > 0 ? work.message[s - 1] : 0);
  }
  return out;
}

Units least_memory(const Workload& work) {
  Units most = 0;
  for (int rank = 0; rank < work.ranks(); ++rank) {
    Units sum = work.standing.empty() ? 0 : work.standing[static_cast<std::size_t>(rank)];
    for (const Stage stage : work.placement.stages_of(rank)) sum += work.activation[stage.at()];
    most = std::max(most, sum);
  }
  return most;
}

Units lower_bound(const Workload& work) {
  const Heads heads = heads_of(work);
  Units bound = 0;
  for (int rank = 0; rank < work.ranks(); ++rank) {
    const auto& stages = work.placement.stages_of(rank);
    if (stages.empty()) continue;
    const Units all = work.work(rank);
    const Units room = work.room(rank);
    Units start = kNoLimit;
    Units first_backward = kNoLimit;
    for (const Stage stage : stages) {
      start = std::min(start, heads.forward[stage.at()]);
      first_backward = std::min(first_backward, heads.backward_input[stage.at()]);
    }
    const double early = std::min(static_cast<double>(all), most_forward_work(work, room, stages));
    bound = std::max({bound, start + all, first_backward + all - static_cast<Units>(std::ceil(early))});
    if (room >= kNoLimit || room <= 0) continue;
    const double held = memory_time(work, heads, stages) * work.microbatches;
    const auto usable = static_cast<double>(usable_memory(work, room, stages));
    // Rounded down, and by another unit for the rounding of the product.
    if (usable > 0) bound = std::max(bound, start + static_cast<Units>(held / usable) - 1);
  }
  return bound;
}

}  // namespace automodel::schedule
