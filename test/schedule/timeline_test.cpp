#include <catch2/catch.hpp>

#include "golden.h"
#include "schedule/chrome_trace.h"
#include "schedule/pipeline_schedule.h"
#include "schedule/simulate.h"
#include "schedule/timeline_svg.h"
#include "schedule/timeline_text.h"

namespace automodel::schedule {
namespace {

Timeline timeline_of(const std::string& name, const Request& request, double transfer = 0) {
  const PipelineSchedule made = make_schedule(generator_named(name), request);
  REQUIRE(made.ok());
  Costs costs = unit_costs(made.shape.stages);
  for (auto& edge : costs.edges) edge.transfer = transfer;
  return simulate(made.training, made.placement, made.shape, costs);
}

int count(const std::string& text, const std::string& what) {
  int found = 0;
  for (std::size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++found;
  return found;
}

/// Every element is closed in the right order, and text contains no stray '<' or '&'.
void check_well_formed(const std::string& xml) {
  std::vector<std::string> open;
  for (std::size_t at = xml.find('<'); at != std::string::npos; at = xml.find('<', at + 1)) {
    const std::size_t end = xml.find('>', at);
    REQUIRE(end != std::string::npos);
    const std::string tag = xml.substr(at + 1, end - at - 1);
    REQUIRE(tag.find('<') == std::string::npos);
    const std::string name = tag.substr(tag[0] == '/' ? 1 : 0, tag.find_first_of(" /", 1) - (tag[0] == '/' ? 1 : 0));
    if (tag[0] == '/') {
      REQUIRE_FALSE(open.empty());
      REQUIRE(open.back() == tag.substr(1));
      open.pop_back();
    } else if (tag.back() != '/') {
      open.push_back(name);
    }
  }
  CHECK(open.empty());
  for (std::size_t at = xml.find('&'); at != std::string::npos; at = xml.find('&', at + 1))
    CHECK((xml.compare(at, 4, "&lt;") == 0 || xml.compare(at, 4, "&gt;") == 0 || xml.compare(at, 5, "&amp;") == 0 ||
           xml.compare(at, 6, "&quot;") == 0));
}

}  // namespace

TEST_CASE("several charts are stacked in one SVG file", "[schedule]") {
  const auto first = timeline_of("1F1B", {2, 1, 4}), second = timeline_of("1F1B", {2, 1, 4}, 0.5);
  const std::string svg = timeline_svg({{&first, {"units", false}}, {&second, {"seconds", true}}});
  check_well_formed(svg);
  CHECK(count(svg, "<svg ") == 3);
  CHECK_THAT(svg, Catch::Contains(">units: bubble"));
  CHECK_THAT(svg, Catch::Contains(">seconds: bubble"));
  const auto alone = timeline_svg(first, {"units", false});
  const auto height = alone.substr(alone.find("height=\"") + 8, alone.find("\" viewBox") - alone.find("height=\"") - 8);
  CHECK_THAT(svg, Catch::Contains("y=\"" + height + "\" width"));  // the second begins where the first ends
}

TEST_CASE("charts in one file have one scale, and labels that name every stage", "[schedule]") {
  // Four stages per rank need a wider margin than one, and more microbatches take longer.
  const auto shorter = timeline_of("Interleaved1F1B", {4, 4, 4}), longer = timeline_of("1F1B", {4, 1, 16});
  const std::string svg = timeline_svg({{&shorter, {"shorter", true}}, {&longer, {"longer", true}}});
  check_well_formed(svg);
  CHECK_THAT(svg, Catch::Contains(">stages 2, 6, 10, 14</text>"));
  // The lanes, in their order: x, width.
  std::vector<std::pair<double, double>> lanes;
  const std::string end = "\" height=\"26\" fill=\"url(#idle)\"";
  for (auto at = svg.find(end); at != std::string::npos; at = svg.find(end, at + 1)) {
    const auto begin = svg.rfind("<rect ", at);
    const auto number = [&](const std::string& key) {
      return std::stod(svg.substr(svg.find(key, begin) + key.size()));
    };
    lanes.emplace_back(number("x=\""), number("width=\""));
  }
  REQUIRE(lanes.size() == 8);
  CHECK(lanes.front().first == lanes.back().first);
  CHECK(lanes.front().first >= 16 + 5.3 * 19);
  CHECK(lanes.front().second / lanes.back().second == Approx(shorter.makespan / longer.makespan).epsilon(1e-3));
}

TEST_CASE("a chart has a lane per rank, a box per computation and the bubble in its title", "[schedule]") {
  const std::string svg = timeline_svg(timeline_of("1F1B", {4, 1, 8}), {"1F1B", false});
  check_well_formed(svg);
  CHECK_THAT(svg, Catch::StartsWith("<svg xmlns="));
  CHECK_THAT(svg, Catch::Contains(">1F1B: bubble 27.3 %</text>"));
  CHECK_THAT(svg, Catch::Contains("<title>3B7: full backward, 25 to 27</title>"));
  CHECK(count(svg, "fill=\"url(#idle)\"") == 4 + 1);  // lanes and legend
  CHECK(count(svg, "<title>") == 64);
  CHECK(count(svg, "\">7</text>") == 8);  // each box shows its microbatch
  CHECK_THAT(svg, !Catch::Contains("message to a neighbour"));
  CHECK_THAT(svg, !Catch::Contains("run together"));
}

TEST_CASE("communication, overlapped pairs and later stages are drawn if there are any", "[schedule]") {
  const std::string svg = timeline_svg(timeline_of("DualPipeV", {2, 2, 4}, 0.1), {"DualPipeV", true});
  check_well_formed(svg);
  CHECK_THAT(svg, Catch::Contains("message to a neighbour"));
  CHECK_THAT(svg, Catch::Contains("run together"));
  CHECK_THAT(svg, Catch::Contains("dark to light"));
  CHECK_THAT(svg, Catch::Contains("0SEND_F0: send forward"));
}

TEST_CASE("titles are escaped, and large charts stay moderate in size", "[schedule]") {
  const std::string title = std::string("</text><script>&\"\x01'") + "1F1B";
  check_well_formed(timeline_svg(timeline_of("1F1B", {1, 1, 1}), {title, true}));
  const std::string large = timeline_svg(timeline_of("Interleaved1F1B", {16, 8, 64}), {"large", false});
  check_well_formed(large);
  CHECK(large.size() < 1'500'000);
}

TEST_CASE("a Chrome trace has one thread per rank and one for its communication", "[schedule]") {
  const auto trace = nlohmann::json::parse(chrome_trace(timeline_of("GPipe", {2, 1, 2}, 0.5), "a \"name\"\n"));
  int names = 0;
  int computations = 0;
  int messages = 0;
  for (const auto& event : trace["traceEvents"]) {
    if (event["name"] == "process_name") CHECK(event["args"]["name"] == "a \"name\"\n");
    if (event["name"] == "thread_name") ++names;
    if (event["ph"] != "X") continue;
    (event["tid"].get<int>() % 2 == 0 ? computations : messages) += 1;
    if (event["name"] == "1F0") {
      CHECK(event["tid"] == 2);
      CHECK(event["cat"] == "forward");
      CHECK(event["ts"] == 1.5e6);
      CHECK(event["dur"] == 1e6);
      CHECK(event["args"]["stage"] == 1);
      CHECK(event["args"]["microbatch"] == 0);
    }
  }
  CHECK(names == 4);
  CHECK(computations == 8);
  CHECK(messages == 4);
}

TEST_CASE("a small schedule is drawn as text, cut off at the given width", "[schedule]") {
  CHECK(timeline_text(timeline_of("1F1B", {2, 1, 3})) ==
        "rank 0  F0 F1 .. .. B0 -- F2 B1 -- .. B2 --\n"
        "rank 1  .. F0 B0 -- F1 B1 -- F2 B2 -- .. ..\n");
  CHECK(timeline_text(timeline_of("ZBVZeroBubble", {2, 2, 2}), 52) ==
        "rank 0  0F0 0F1 ..  3F0 3I0 3W0 3F1 3I1 3W1 0I0 ...\n"
        "rank 1  ..  1F0 2F0 1F1 2F1 2I0 2W0 1I0 1W0 2I1 ...\n");
  CHECK(timeline_text(timeline_of("1F1B", {2, 1, 3}), 3) == "rank 0  ...\nrank 1  ...\n");
}

}  // namespace automodel::schedule
