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

class Search {
 public:
  Search(TrainingPlan& plan, const config::LoadedRecipe& recipe, Costs& costs, Located& report)
      : plan_(plan), recipe_(recipe), costs_(costs), report_(report) {}

  std::optional<FoundSchedule> run() {
    const auto wanted = wanted_limit();
    if (!report_.ok()) return std::nullopt;
    const double usual = costs_.memory(plan_, recipe_.recipe).usual();
    auto weighed = costs_.pipeline(plan_, recipe_.recipe);
    try_named_schedules();
    double limit = wanted.value_or(usual);
    if (limit == 0) limit = fastest_named().memory;
    const auto& placement = plan_.pipeline->schedule.placement;
    double least = 0;
    for (int rank = 0; rank < placement.ranks(); ++rank)
      least = std::max(least, schedule::least_memory(weighed, placement, rank));
    // The estimate knows more than the search: buffers depend on the order, and the peak may be at another moment. What
    // it finds too much is taken off the limit.
    weighed.memory = std::max(limit, least);
    for (int round = 0; round < kRounds; ++round) {
      if (!find(weighed)) break;
      const double excess = tried_.back().needs.memory - limit;
      if (excess <= 0 || *weighed.memory <= least) break;
      weighed.memory = std::max(*weighed.memory - excess, least);
    }
    auto out = best(limit);
    if (out.needs.fits || !wanted) return out;
    report_.refuse("schedule-memory-limit", kLimitKey)
        .says("no order was found that keeps a memory_limit of {}: the heaviest rank needs {}", format_bytes(limit),
              format_bytes(out.needs.memory))
        .hint("at least {}, or more pipeline ranks", format_bytes(out.needs.memory));
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
    tried_.push_back({plan_.pipeline->schedule,
                      {costs_.step(plan_, recipe_.recipe), costs_.memory(plan_, recipe_.recipe).heaviest()}});
  }

  struct Tried {
    schedule::PipelineSchedule schedule = {};
    ScheduleNeeds needs = {};
  };

  const ScheduleNeeds& fastest_named() const {
    return std::ranges::min_element(tried_, {}, [](const Tried& each) { return each.needs.step; })->needs;
  }

  FoundSchedule best(double limit) {
    for (auto& each : tried_) each.needs.fits = each.needs.memory <= limit;
    const auto best =
        std::ranges::min_element(tried_, [](const Tried& a, const Tried& b) { return a.needs.better_than(b.needs); });
    plan_.pipeline->schedule = std::move(best->schedule);
    return {*plan_.pipeline, best->needs};
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
