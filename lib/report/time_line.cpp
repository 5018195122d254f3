#include "report/time_line.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <optional>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "report/html.h"
#include "schedule/action.h"

namespace automodel::report {
namespace {

using Json = nlohmann::json;

/// The CSS class for a kind of action.
struct Kind {
  std::string_view name, css;
};
constexpr std::array kKinds = {Kind{"forward", "k-f"}, Kind{"full backward", "k-b"}, Kind{"input gradient", "k-i"},
                               Kind{"weight gradient", "k-w"}};

std::string_view css_of(const Bar& bar) {
  for (const auto& kind : kKinds)
    if (kind.name == bar.kind) return kind.css;
  return "k-c";
}

std::string row(const Lanes& lanes, int rank) {
  std::string bars;
  for (const auto& bar : lanes.bars) {
    if (bar.rank != rank || bar.end <= bar.begin) continue;
    bars += fmt::format(
        R"(<rect class="{}" x="{:.2f}" y="{}" width="{:.2f}" height="{}"><title>{} {:.3f} ms</title></rect>)",
        css_of(bar), 1000 * bar.begin / lanes.makespan, bar.compute ? 2 : 16,
        std::max(0.5, 1000 * (bar.end - bar.begin) / lanes.makespan), bar.compute ? 14 : 3, escaped(bar.name),
        1e3 * (bar.end - bar.begin));
  }
  return fmt::format(
      R"(<div class="lane"><span>rank {}</span><svg viewBox="0 0 1000 20" preserveAspectRatio="none">{}</svg>)"
      "<span>{:.1f}%</span></div>\n",
      rank, bars, 100 * lanes.bubble(rank));
}

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

double Lanes::bubble(int rank) const {
  double busy = 0;
  for (const auto& bar : bars)
    if (bar.rank == rank && bar.compute) busy += bar.end - bar.begin;
  return makespan > 0 ? std::max(0.0, 1 - busy / makespan) : 0;
}

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

std::string time_line_html(const StepTrace& trace) {
  std::string out = fmt::format("<h3>{}</h3>\n<p class=\"legend\">", escaped(trace.file));
  for (const auto& kind : kKinds) out += fmt::format(R"(<span class="key {}">{}</span>)", kind.css, kind.name);
  out += "<span class=\"key k-c\">messages</span></p>\n";
  for (const auto& lanes : trace.lanes) {
    out += fmt::format("<figure class=\"lanes\"><figcaption>{}: {:.1f} ms; right: bubble of the rank</figcaption>\n",
                       escaped(lanes.name), 1e3 * lanes.makespan);
    for (int rank = 0; rank < lanes.ranks; ++rank) out += row(lanes, rank);
    out += "</figure>\n";
  }
  return out;
}

}  // namespace automodel::report
