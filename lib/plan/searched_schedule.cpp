#include "plan/searched_schedule.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/error.h"
#include "schedule/search_order.h"

namespace automodel::plan {
namespace {

constexpr const char* kLimitKey = "distributed.pipeline.search.memory_limit";
constexpr int kRounds = 3;
constexpr double kTight = 0.9;  // of the device's memory, as the estimate calls it

class Search {
 public:
  Search(TrainingPlan& plan, const config::LoadedRecipe& recipe, Costs& costs, Located& report)
      : plan_(plan), recipe_(recipe), costs_(costs), report_(report) {}

  std::optional<FoundSchedule> run() {
    const auto wanted = wanted_limit();
    if (!report_.ok()) return std::nullopt;
    const auto capacity = costs_.memory(plan_, recipe_.recipe).capacity;
    auto weighed = costs_.pipeline(plan_, recipe_.recipe);
    try_named_schedules();
    double limit = wanted.value_or(capacity.value_or(0) * kTight);
    if (limit == 0) limit = fastest_named().memory;
    const double least = least_memory(weighed);
    // The estimate knows more than the search: buffers depend on the order, and the peak may be at another moment. What
    // it finds too much is taken off the limit.
    weighed.memory = std::max(limit, least);
    for (int round = 0; round < kRounds; ++round) {
      if (!find(weighed)) break;
      const double excess = tried_.back().memory - limit;
      if (excess <= 0 || *weighed.memory <= least) break;
      weighed.memory = std::max(*weighed.memory - excess, least);
    }
    auto out = best(limit);
    if (out.fits || !wanted) return out;
    report_.refuse("schedule-memory-limit", kLimitKey)
        .says("no order was found that keeps a memory_limit of {}: the heaviest rank needs {}", format_bytes(limit),
              format_bytes(out.memory))
        .hint("at least {}, or more pipeline ranks", format_bytes(out.memory));
    return std::nullopt;
  }

 private:
  std::optional<double> wanted_limit() {
    const auto& section = recipe_.recipe.distributed->pipeline()->search();
    if (!section || !section->memory_limit()) return std::nullopt;
    const auto bytes = parse_bytes(*section->memory_limit());
    if (!bytes || *bytes <= 0)
      report_.refuse("bad-value", kLimitKey)
          .says("'{}' is not a memory size", *section->memory_limit())
          .hint("for example 60GiB");
    return bytes ? std::optional(static_cast<double>(*bytes)) : std::nullopt;
  }

  /// False if the found order cannot run on this machine.
  bool find(const schedule::PipelineCosts& weighed) {
    const auto placement = plan_.pipeline->schedule.placement;
    const auto shape = plan_.pipeline->schedule.shape;
    schedule::CsvTable table{schedule::search_order(schedule::scaled(weighed, placement, shape.microbatches).work),
                             schedule::Origin("searched")};
    auto found = schedule::make_schedule(std::move(table), schedule::CsvFormat::kComputeOnly, shape);
    // NCCL runs the messages of a pair of ranks in order, which named schedules keep and a found one may not.
    const bool in_order = plan_.cuda && config::backend_of(recipe_.recipe) != config::Backend::kMpi;
    if (in_order && !schedule::prove_meetings(found.training, placement, shape, schedule::Origin("searched")).empty())
      return false;
    consider(std::move(found));
    return true;
  }

  /// Below this limit not even one microbatch at a time passes the heaviest rank.
  double least_memory(const schedule::PipelineCosts& weighed) const {
    double most = 0;
    const auto& placement = plan_.pipeline->schedule.placement;
    for (int rank = 0; rank < placement.ranks(); ++rank) {
      double needed = weighed.standing[static_cast<std::size_t>(rank)];
      for (const auto stage : placement.stages_of(rank)) needed += weighed.activation[stage.at()];
      most = std::max(most, needed);
    }
    return most;
  }

  /// Tables that have a name count as found: where times are even, one of them is the best there is.
  void try_named_schedules() {
    const auto& made = plan_.pipeline->schedule;
    const schedule::Request request{.ranks = made.shape.ranks,
                                    .stages_per_rank = made.shape.stages / made.shape.ranks,
                                    .microbatches = made.shape.microbatches};
    const auto placement = made.placement;
    for (const auto& row : schedule::generators()) {
      if (row.generate == nullptr || !schedule::check_request(row, request).empty()) continue;
      if (schedule::make_placement(row.placement, request.ranks, request.stages()) == placement)
        consider(schedule::make_schedule(row, request));
    }
  }

  void consider(schedule::PipelineSchedule made) {
    AUTOMODEL_CHECK(made.ok(), to_text(made.problems));
    plan_.pipeline->schedule = std::move(made);
    const auto memory = costs_.memory(plan_, recipe_.recipe).ranks;
    tried_.push_back({plan_.pipeline->schedule, costs_.step(plan_, recipe_.recipe),
                      *std::max_element(memory.begin(), memory.end())});
  }

  struct Tried {
    schedule::PipelineSchedule schedule = {};
    double step = 0;
    double memory = 0;
  };

  const Tried& fastest_named() const {
    return *std::min_element(tried_.begin(), tried_.end(),
                             [](const Tried& a, const Tried& b) { return a.step < b.step; });
  }

  FoundSchedule best(double limit) {
    std::optional<FoundSchedule> out;
    for (auto& each : tried_) {
      FoundSchedule found{*plan_.pipeline, each.step, each.memory, each.memory <= limit};
      if (out && !found.better_than(*out)) continue;
      found.pipeline.schedule = std::move(each.schedule);
      out = std::move(found);
    }
    return std::move(*out);
  }

  TrainingPlan& plan_;
  const config::LoadedRecipe& recipe_;
  Costs& costs_;
  Located& report_;
  std::vector<Tried> tried_ = {};
};

}  // namespace

std::optional<FoundSchedule> fastest_schedule(TrainingPlan& plan, const config::LoadedRecipe& recipe, Costs& costs,
                                              Located& report) {
  return Search(plan, recipe, costs, report).run();
}

}  // namespace automodel::plan
