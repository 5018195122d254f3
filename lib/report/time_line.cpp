#include "report/time_line.h"

#include <algorithm>
#include <array>
#include <map>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "report/html.h"

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
  for (const auto& event : json["traceEvents"]) {
    if (!event.is_object() || !event.contains("pid") || !event.contains("ph")) continue;
    auto& lane = lanes[event["pid"].get<int>()];
    if (event["ph"] == "M" && event.value("name", "") == "process_name") lane.name = event["args"].value("name", "");
    if (event["ph"] != "X") continue;
    const int thread = event.value("tid", 0);
    const double begin = event.value("ts", 0.0) / 1e6;
    lane.bars.push_back({.rank = thread / 2,
                         .compute = thread % 2 == 0,
                         .begin = begin,
                         .end = begin + event.value("dur", 0.0) / 1e6,
                         .kind = event.value("cat", ""),
                         .name = event.value("name", "")});
    lane.ranks = std::max(lane.ranks, thread / 2 + 1);
    lane.makespan = std::max(lane.makespan, lane.bars.back().end);
  }
  for (auto& [process, lane] : lanes)
    if (!lane.bars.empty()) out.lanes.push_back(std::move(lane));
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
