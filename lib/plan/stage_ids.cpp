#include "plan/stage_ids.h"

#include <algorithm>

#include <fmt/format.h>

namespace automodel::plan {

std::string_view name_of(Placement placement) {
  return placement == Placement::kLoop ? "loop" : "v";
}

std::optional<Placement> parse_placement(std::string_view text) {
  if (text == "loop") return Placement::kLoop;
  if (text == "v") return Placement::kV;
  return std::nullopt;
}

std::optional<std::vector<int>> stage_ids_this_rank(int pp_rank, int pp_size, int stages, Placement placement,
                                                    Diagnostics& problems) {
  if (pp_size < 1 || pp_rank < 0 || pp_rank >= pp_size || stages < 0) {
    problems.push_back({"bad-value",
                        fmt::format("rank {} of {} pipeline ranks with {} stages", pp_rank, pp_size, stages),
                        "ranks count from 0 and numbers of stages are not negative"});
    return std::nullopt;
  }
  if (stages % pp_size != 0) {
    const int below = stages / pp_size * pp_size;
    problems.push_back({"indivisible", fmt::format("{} stages on {} pipeline ranks", stages, pp_size),
                        fmt::format("every rank runs the same number of stages; use {}{} stages",
                                    below > 0 ? fmt::format("{} or ", below) : "", below + pp_size)});
    return std::nullopt;
  }
  if (placement == Placement::kV && stages != 2 * pp_size) {
    problems.push_back({"schedule-v-stages",
                        fmt::format("{} stages on {} pipeline ranks, placed as a V", stages, pp_size),
                        fmt::format("a V has exactly two stages a rank; use {} stages", 2 * pp_size)});
    return std::nullopt;
  }
  std::vector<int> out;
  if (placement == Placement::kV) return out = {pp_rank, stages - 1 - pp_rank};
  for (int stage = pp_rank; stage < stages; stage += pp_size) out.push_back(stage);
  return out;
}

int rank_of_stage(int stage, int pp_size, Placement placement) {
  return placement == Placement::kV ? std::min(stage, 2 * pp_size - 1 - stage) : stage % pp_size;
}

}  // namespace automodel::plan
