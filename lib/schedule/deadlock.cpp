#include "schedule/deadlock.h"

#include <algorithm>

#include <fmt/format.h>

namespace automodel::schedule {
namespace {

constexpr std::size_t kMostTold = 16;  // ranks of a cycle listed in the message

/// The ranks of a cycle, starting with the lowest. If the chain of waits ends at a finished rank, that chain.
std::vector<std::size_t> cycle_of(const std::vector<std::optional<Wait>>& waits) {
  const auto first = std::find_if(waits.begin(), waits.end(), [](const auto& wait) { return wait.has_value(); });
  std::vector<std::size_t> path;
  std::vector<bool> visited(waits.size(), false);
  auto rank = static_cast<std::size_t>(first - waits.begin());
  while (waits[rank].has_value() && !visited[rank]) {
    visited[rank] = true;
    path.push_back(rank);
    rank = waits[rank]->rank;
  }
  if (waits[rank].has_value()) {
    path.erase(path.begin(), std::find(path.begin(), path.end(), rank));
    std::rotate(path.begin(), std::min_element(path.begin(), path.end()), path.end());
  }
  return path;
}

}  // namespace

Diagnostic deadlock(const std::vector<std::optional<Wait>>& waits, const Origin& origin) {
  const auto cycle = cycle_of(waits);
  std::string story;
  for (std::size_t i = 0; i < std::min(cycle.size(), kMostTold); ++i) {
    const Wait& wait = *waits[cycle[i]];
    story += i == 0 ? fmt::format("rank {} waits", cycle[i]) : ", which waits";
    story += fmt::format(" at step {} `{}` for `{}` of rank {}", wait.step, wait.action, wait.needs, wait.rank);
  }
  if (cycle.size() > kMostTold) story += fmt::format(", and so on over {} ranks", cycle.size());
  return Diagnostic{"schedule-deadlock"}
      .says("the ranks wait for each other: " + story)
      .hint("every action must stand after what it needs on all ranks together; change the order on one of these ranks")
      .at(origin.cell(cycle.front(), waits[cycle.front()]->step));
}

}  // namespace automodel::schedule
