#include "schedule/pipeline_costs.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "base/error.h"

namespace automodel::schedule {
namespace {

struct CostList {
  std::string_view name;
  std::vector<double> PipelineCosts::*values;
};
constexpr std::array kCostLists = {
    CostList{"forward", &PipelineCosts::forward},
    CostList{"backward_input", &PipelineCosts::backward_input},
    CostList{"backward_weight", &PipelineCosts::backward_weight},
    CostList{"activation", &PipelineCosts::activation},
    CostList{"kept", &PipelineCosts::kept},
};
// Units in the largest number, unless all are short decimal fractions.
constexpr double kTimeResolution = 1e6;
constexpr double kMemoryResolution = 1e12;
constexpr double kMemoryTolerance = 1e-9;  // of the limit: a schedule's own peak is a limit that it keeps

Diagnostic bad_costs(std::string message, std::string help) {
  return Diagnostic{"schedule-costs"}.says(std::move(message)).hint(std::move(help));
}

/// One message per list, about its first wrong number.
Diagnostics check_numbers(const PipelineCosts& costs, std::size_t stages) {
  Diagnostics problems;
  for (const CostList& list : kCostLists) {
    const auto& values = costs.*list.values;
    if (values.size() != stages)
      problems.push_back(bad_costs(fmt::format("{} has {} numbers for {} stages", list.name, values.size(), stages),
                                   fmt::format("give {} numbers, one per stage, or one for all", stages)));
    for (std::size_t s = 0; s < values.size(); ++s)
      if (!std::isfinite(values[s]) || values[s] < 0) {
        problems.push_back(bad_costs(fmt::format("{} of stage {} is {}", list.name, s, values[s]),
                                     "costs are finite and not negative; the nearest possible value is 0"));
        break;
      }
  }
  if (!std::isfinite(costs.message) || costs.message < 0)
    problems.push_back(bad_costs(fmt::format("comm is {}", costs.message),
                                 "it is finite and not negative; the nearest possible value is 0"));
  return problems;
}

/// The number of units in 1 for which all values are whole; else so that the largest is `resolution`.
double units_in_one(const std::vector<double>& values, double resolution) {
  double largest = 0;
  for (const double value : values) largest = std::max(largest, value);
  for (double units = 1; units <= 1e6 && largest * units <= 1e9; units *= 10) {
    const bool whole = std::all_of(values.begin(), values.end(), [&](double value) {
      return std::abs(value * units - std::round(value * units)) < 1e-6;
    });
    if (whole) return units;
  }
  return largest > 0 ? resolution / largest : 1;
}

std::vector<double> joined(std::initializer_list<const std::vector<double>*> lists, double last) {
  std::vector<double> out = {last};
  for (const auto* list : lists) out.insert(out.end(), list->begin(), list->end());
  return out;
}

enum class Rounding : std::uint8_t { kNearest, kDown };

ScaledWorkload scale(const PipelineCosts& costs, const Placement& placement, int microbatches, Rounding rounding) {
  const double time = units_in_one(
      joined({&costs.forward, &costs.backward_input, &costs.backward_weight}, costs.message), kTimeResolution);
  const double memory = units_in_one(joined({&costs.activation, &costs.kept, &costs.standing}, 0), kMemoryResolution);
  const auto times = [&](double value) {
    return rounding == Rounding::kDown ? static_cast<Units>(std::floor(value * time + 1e-6))
                                       : static_cast<Units>(std::llround(value * time));
  };
  const auto bytes = [&](double value) { return static_cast<Units>(std::llround(value * memory)); };
  ScaledWorkload out{{placement, microbatches}, 1 / time};
  Workload& work = out.work;
  for (std::size_t s = 0; s < costs.forward.size(); ++s) {
    work.forward.push_back(times(costs.forward[s]));
    work.backward_input.push_back(times(costs.backward_input[s]));
    work.backward_weight.push_back(times(costs.backward_weight[s]));
    work.activation.push_back(bytes(costs.activation[s]));
    work.kept.push_back(bytes(costs.kept[s]));
    if (s == 0) continue;
    const Stage here{static_cast<int>(s)};
    const bool local = placement.rank_of(here) == placement.rank_of(Stage{here.value - 1});
    work.message.push_back(local ? 0 : times(costs.message));
  }
  for (const double value : costs.standing) work.standing.push_back(bytes(value));
  if (costs.memory)
    work.memory = static_cast<Units>(
        std::floor(std::min(*costs.memory * memory * (1 + kMemoryTolerance) + 1e-6, static_cast<double>(kNoLimit))));
  return out;
}

/// Executes rows in turn until all have ended.
class EarliestTimes {
 public:
  EarliestTimes(const Schedule& order, const Placement& placement, const Shape& shape, const PipelineCosts& costs)
      : order_(order),
        placement_(placement),
        shape_(shape),
        costs_(costs),
        forward_end_(shape.pairs(), kUnknown),
        backward_end_(shape.pairs(), kUnknown),
        next_(order.size(), 0),
        free_at_(order.size(), 0) {}

  Timeline run() {
    out_.shape = shape_;
    out_.placement = placement_;
    out_.ranks.resize(order_.size());
    bool moved = true;
    while (moved) {
      moved = false;
      for (std::size_t rank = 0; rank < order_.size(); ++rank)
        while (next_[rank] < order_[rank].size() && perform(order_[rank][next_[rank]], rank)) {
          ++next_[rank];
          moved = true;
        }
    }
    double busy = 0;
    for (std::size_t rank = 0; rank < order_.size(); ++rank) {
      AUTOMODEL_CHECK(next_[rank] == order_[rank].size(), "a table that does not end");
      out_.makespan = std::max(out_.makespan, free_at_[rank]);
      busy += out_.ranks[rank].busy;
    }
    for (RankTime& rank : out_.ranks) rank.idle = out_.makespan - rank.busy;
    if (out_.makespan > 0) out_.bubble_fraction = 1 - busy / (out_.makespan * static_cast<double>(out_.ranks.size()));
    return std::move(out_);
  }

 private:
  static constexpr double kUnknown = -1;

  /// False if the data of one of the slot's actions has no time yet.
  bool perform(const Slot& slot, std::size_t rank) {
    double start = free_at_[rank];
    for (const Action& action : slot.actions()) {
      const double at = data_at(action);
      if (at == kUnknown) return false;
      start = std::max(start, at);
    }
    for (const Action& action : slot.actions()) {
      const double end = start + duration(action);
      Event& event = out_.events.emplace_back();
      event.start = start;
      event.end = end;
      event.action = action;
      event.rank = static_cast<int>(rank);
      event.paired = slot.is_overlap();
      out_.ranks[rank].busy += end - start;
      if (action.op() == Op::kForward) forward_end_[shape_.pair(action)] = end;
      if (action.op() == Op::kBackwardInput || action.op() == Op::kFullBackward)
        backward_end_[shape_.pair(action)] = end;
      free_at_[rank] = start = end;
    }
    return true;
  }

  double data_at(const Action& action) const {
    if (action.op() == Op::kBackwardWeight) return 0;
    const bool forward = action.op() == Op::kForward;
    const Stage from{action.stage().value + (forward ? -1 : 1)};
    if (from.value < 0 || from.value >= shape_.stages) return 0;  // on this rank, or nowhere
    const double end = (forward ? forward_end_ : backward_end_)[shape_.pair(from, action.microbatch())];
    const bool local = placement_.rank_of(from) == placement_.rank_of(action.stage());
    return end == kUnknown || local ? end : end + costs_.message;
  }

  double duration(const Action& action) const {
    const std::size_t stage = action.stage().at();
    double out = 0;
    if (action.op() == Op::kForward) out += costs_.forward[stage];
    if (action.op() == Op::kBackwardInput || action.op() == Op::kFullBackward) out += costs_.backward_input[stage];
    if (action.op() == Op::kBackwardWeight || action.op() == Op::kFullBackward) out += costs_.backward_weight[stage];
    return out;
  }

  const Schedule& order_;
  const Placement& placement_;
  const Shape& shape_;
  const PipelineCosts& costs_;
  std::vector<double> forward_end_, backward_end_;  // by stage and microbatch
  std::vector<std::size_t> next_;                   // by rank
  std::vector<double> free_at_;
  Timeline out_;
};

}  // namespace

PipelineCosts even_costs(int stages) {
  const std::vector<double> ones(static_cast<std::size_t>(stages), 1);
  return {ones, ones, ones, ones, ones};
}

double least_memory(const PipelineCosts& costs, const Placement& placement, int rank) {
  double needed = costs.standing.empty() ? 0 : costs.standing[static_cast<std::size_t>(rank)];
  for (const Stage stage : placement.stages_of(rank)) needed += costs.activation[stage.at()];
  return needed;
}

Diagnostics check_costs(const PipelineCosts& costs, const Placement& placement) {
  const auto stages = static_cast<std::size_t>(placement.stages());
  Diagnostics problems = check_numbers(costs, stages);
  if (!problems.empty()) return problems;
  double time = 0;
  for (std::size_t s = 0; s < stages; ++s) {
    time += costs.forward[s] + costs.backward_input[s] + costs.backward_weight[s];
    if (costs.kept[s] > costs.activation[s])
      problems.push_back(
          bad_costs(fmt::format("kept of stage {} is {}, its activation {}", s, costs.kept[s], costs.activation[s]),
                    fmt::format("what is kept until W is part of the activation: at most {}", costs.activation[s])));
  }
  if (time <= 0) problems.push_back(bad_costs("no stage takes any time", "give at least one stage a positive time"));
  if (!costs.memory || !problems.empty()) return problems;
  for (int rank = 0; rank < placement.ranks(); ++rank) {
    const double needed = least_memory(costs, placement, rank);
    if (*costs.memory >= needed) continue;
    problems.add("schedule-memory-limit")
        .says("a limit of {} is less than one microbatch needs on rank {}: {}", *costs.memory, rank, needed)
        .hint("the limit is per rank, in the unit of `activation`: at least {}", needed);
    break;
  }
  return problems;
}

ScaledWorkload scaled(const PipelineCosts& costs, const Placement& placement, int microbatches) {
  return scale(costs, placement, microbatches, Rounding::kNearest);
}

double lower_bound(const PipelineCosts& costs, const Placement& placement, int microbatches) {
  const auto [work, unit] = scale(costs, placement, microbatches, Rounding::kDown);
  return static_cast<double>(lower_bound(work)) * unit;
}

Timeline earliest_times(const Schedule& order, const Placement& placement, const Shape& shape,
                        const PipelineCosts& costs) {
  return EarliestTimes(order, placement, shape, costs).run();
}

std::vector<double> peak_activations(const Schedule& order, const PipelineCosts& costs) {
  std::vector<double> peaks;
  for (const Row& row : order) {
    double held = 0;
    double peak = 0;
    for (const Slot& slot : row)
      for (const Action& action : slot.actions()) {
        const std::size_t stage = action.stage().at();
        if (action.op() == Op::kForward) held += costs.activation[stage];
        peak = std::max(peak, held);
        if (action.op() == Op::kBackwardInput) held -= costs.activation[stage] - costs.kept[stage];
        if (action.op() == Op::kBackwardWeight) held -= costs.kept[stage];
        if (action.op() == Op::kFullBackward) held -= costs.activation[stage];
      }
    peaks.push_back(peak);
  }
  return peaks;
}

}  // namespace automodel::schedule
