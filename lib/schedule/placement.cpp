#include "schedule/placement.h"

#include <array>

#include <fmt/format.h>

#include "base/error.h"

namespace automodel::schedule {
namespace {

int loop_rank(int stage, int ranks) {
  return stage % ranks;
}
int v_rank(int stage, int ranks) {
  const bool downwards = stage / ranks % 2 == 1;
  return downwards ? ranks - 1 - stage % ranks : stage % ranks;
}

struct Style {
  PlacementStyle style;
  std::string_view name;
  int (*rank_of)(int stage, int ranks);
};
constexpr std::array kStyles = {
    Style{PlacementStyle::kLoop, "loop", loop_rank},
    Style{PlacementStyle::kV, "v", v_rank},
};
const Style& row(PlacementStyle style) {
  return kStyles[static_cast<std::size_t>(style)];
}

}  // namespace

Placement::Placement(int ranks, std::vector<int> rank_of_stage)
    : rank_of_stage_(std::move(rank_of_stage)), stages_of_rank_(static_cast<std::size_t>(ranks)) {
  local_index_.reserve(rank_of_stage_.size());
  for (int stage = 0; stage < stages(); ++stage) {
    const int rank = rank_of(Stage{stage});
    AUTOMODEL_CHECK(rank >= 0 && rank < ranks, "stage on a rank that does not exist");
    auto& local = stages_of_rank_[static_cast<std::size_t>(rank)];
    local_index_.push_back(static_cast<int>(local.size()));
    local.push_back(Stage{stage});
  }
}

Diagnostics check_placement(PlacementStyle style, int ranks, int stages) {
  Diagnostics problems;
  if (ranks < 1 || ranks > kMaxRanks)
    problems.add("schedule-ranks").says("{} pipeline ranks", ranks).hint("a pipeline has 1 to {} ranks", kMaxRanks);
  if (stages < 1 || stages > kMaxStages)
    problems.add("schedule-stages")
        .says("{} pipeline stages", stages)
        .hint("a pipeline has 1 to {} stages", kMaxStages);
  if (problems.empty() && style == PlacementStyle::kV && stages % ranks != 0)
    problems.add("schedule-stages")
        .says("{} stages cannot be placed as a V on {} ranks", stages, ranks)
        .hint("a V needs the same number of stages on every rank: {}{} stages",
              stages > ranks ? fmt::format("{} or ", stages / ranks * ranks) : "", (stages / ranks + 1) * ranks);
  return problems;
}

Placement make_placement(PlacementStyle style, int ranks, int stages) {
  AUTOMODEL_CHECK(check_placement(style, ranks, stages).empty(), "illegal placement");
  std::vector<int> rank_of_stage;
  rank_of_stage.reserve(static_cast<std::size_t>(stages));
  for (int stage = 0; stage < stages; ++stage) rank_of_stage.push_back(row(style).rank_of(stage, ranks));
  return Placement(ranks, std::move(rank_of_stage));
}

std::optional<Placement> infer_placement(const Schedule& schedule, int stages) {
  std::vector<int> rank_of_stage(static_cast<std::size_t>(stages), -1);
  int placed = 0;
  for (std::size_t rank = 0; rank < schedule.size(); ++rank)
    for (const Slot& slot : schedule[rank])
      for (const Action& action : slot.actions()) {
        if (action.stage().value >= stages) return std::nullopt;
        int& owner = rank_of_stage[action.stage().at()];
        if (owner == static_cast<int>(rank)) continue;
        if (owner != -1) return std::nullopt;
        owner = static_cast<int>(rank);
        ++placed;
      }
  if (placed != stages) return std::nullopt;
  return Placement(static_cast<int>(schedule.size()), std::move(rank_of_stage));
}

std::string_view name_of(PlacementStyle style) {
  return row(style).name;
}

std::string_view style_of(const Placement& placement) {
  for (const auto& candidate : kStyles) {
    bool same = true;
    for (int stage = 0; same && stage < placement.stages(); ++stage)
      same = placement.rank_of(Stage{stage}) == candidate.rank_of(stage, placement.ranks());
    if (same) return candidate.name;
  }
  return "custom";
}

}  // namespace automodel::schedule
