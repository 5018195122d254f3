#include "schedule/timeline_text.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include <fmt/format.h>

namespace automodel::schedule {
namespace {

std::string label(const Event& event, bool with_stage) {
  const std::string text = to_text(event.action);
  return with_stage ? text : text.substr(std::to_string(event.action.stage().value).size());
}

double shortest_computation(const Timeline& timeline) {
  double shortest = timeline.makespan;
  for (const Event& event : timeline.events)
    if (event.lane == Lane::kCompute && event.end > event.start) shortest = std::min(shortest, event.end - event.start);
  return shortest;
}

}  // namespace

std::string timeline_text(const Timeline& timeline, std::size_t width) {
  const double unit = shortest_computation(timeline);
  const bool with_stage = timeline.shape.stages > timeline.shape.ranks;
  std::size_t cell = 2;
  for (const Event& event : timeline.events)
    if (event.lane == Lane::kCompute) cell = std::max(cell, label(event, with_stage).size());

  const std::size_t name = std::string("rank ").size() + std::to_string(timeline.shape.ranks - 1).size() + 2;
  const std::size_t most = width > name + 3 ? (width - name - 3) / (cell + 1) : 0;
  const auto column = [&](double time) {
    return unit > 0 ? static_cast<std::size_t>(std::llround(std::min(time / unit, 1e6))) : 0;
  };
  const std::size_t columns = std::min(column(timeline.makespan), most);
  std::vector<std::vector<std::string>> lines(static_cast<std::size_t>(timeline.shape.ranks),
                                              std::vector<std::string>(columns, ".."));
  for (const Event& event : timeline.events) {
    if (event.lane != Lane::kCompute) continue;
    auto& line = lines[static_cast<std::size_t>(event.rank)];
    const std::size_t begin = column(event.start);
    for (std::size_t i = begin; i < std::min(std::max(column(event.end), begin + 1), columns); ++i)
      line[i] = i == begin ? label(event, with_stage) : "--";
  }
  std::string out;
  for (std::size_t rank = 0; rank < lines.size(); ++rank) {
    std::string line = "rank " + std::to_string(rank);
    line.resize(name, ' ');
    for (std::string& text : lines[rank]) {
      text.resize(cell, text == "--" ? '-' : ' ');
      line += text + " ";
    }
    if (columns < column(timeline.makespan)) line += "...";
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + "\n";
  }
  return out;
}

std::string heaviest_rank(const Timeline& timeline) {
  const auto busiest = std::max_element(timeline.ranks.begin(), timeline.ranks.end(),
                                        [](const auto& a, const auto& b) { return a.busy < b.busy; });
  const auto rank = static_cast<int>(busiest - timeline.ranks.begin());
  double total = 0;
  for (const auto& each : timeline.ranks) total += each.busy;
  const double mean = total / static_cast<double>(timeline.ranks.size());
  if (busiest->busy < 1.02 * mean || busiest->busy < 0.95 * timeline.makespan) return "";
  std::string stages;
  for (const auto stage : timeline.placement.stages_of(rank))
    stages += fmt::format("{}{}", stages.empty() ? "" : ", ", stage.value);
  return fmt::format(
      "rank {} (stage {}) works {:.1f} % of the makespan, the mean rank {:.1f} %: only moving work to other stages "
      "makes the step shorter",
      rank, stages, 100 * busiest->busy / timeline.makespan, 100 * mean / timeline.makespan);
}

}  // namespace automodel::schedule
