#include "report/time_line.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>

#include <nlohmann/json.hpp>

#include "schedule/action.h"

namespace automodel::report {
namespace {

using Json = nlohmann::json;

// Traces of other tools have the same keys with values of other types.
std::optional<int> index_of(const Json& event, const char* key) {
  const auto found = event.find(key);
  if (found == event.end() || !found->is_number_integer()) return std::nullopt;
  const auto value = found->get<std::int64_t>();
  return value >= 0 && value < 2 * schedule::kMaxRanks ? std::optional(static_cast<int>(value)) : std::nullopt;
}

std::optional<double> seconds_of(const Json& event, const char* key) {
  const auto found = event.find(key);
  if (found == event.end() || !found->is_number()) return std::nullopt;
  const auto value = found->get<double>() / 1e6;
  return value >= 0 ? std::optional(value) : std::nullopt;
}

std::string text_of(const Json& event, const char* key) {
  const auto found = event.find(key);
  return found != event.end() && found->is_string() ? found->get<std::string>() : "";
}

/// Adds an event to the lanes of its process; false if it is not one that schedule::chrome_trace writes.
bool add_event(const Json& event, std::map<int, Lanes>& lanes) {
  if (!event.is_object()) return false;
  const auto process = index_of(event, "pid");
  if (!process) return false;
  const auto phase = text_of(event, "ph"), name = text_of(event, "name"), kind = text_of(event, "cat");
  auto& lane = lanes[*process];
  if (phase == "M") {
    const auto arguments = event.find("args");
    if (name == "process_name" && arguments != event.end() && arguments->is_object())
      lane.name = text_of(*arguments, "name");
    return true;
  }
  const auto thread = index_of(event, "tid");
  const auto begin = seconds_of(event, "ts"), duration = seconds_of(event, "dur");
  if (phase != "X" || !thread || !begin || !duration || name.empty() ||
      std::ranges::find(schedule::kOps, kind, &schedule::OpTraits::meaning) == schedule::kOps.end())
    return false;
  const int rank = *thread / 2;
  lane.bars.push_back({.rank = rank,
                       .compute = *thread % 2 == 0,
                       .begin = *begin,
                       .end = *begin + *duration,
                       .kind = kind,
                       .name = name});
  lane.ranks = std::max(lane.ranks, rank + 1);
  lane.makespan = std::max(lane.makespan, lane.bars.back().end);
  return true;
}

}  // namespace

StepTrace read_trace(std::string_view text, const std::string& file) {
  StepTrace out{.file = file};
  const auto json = Json::parse(text, nullptr, false);
  if (!json.is_object() || !json.contains("traceEvents") || !json["traceEvents"].is_array()) return out;
  std::map<int, Lanes> lanes;
  for (const auto& event : json["traceEvents"])
    if (!add_event(event, lanes)) return out;
  for (auto& [process, lane] : lanes)
    if (!lane.name.empty() && !lane.bars.empty()) out.lanes.push_back(std::move(lane));
  return out;
}

}  // namespace automodel::report
