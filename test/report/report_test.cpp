// What a page shows of a run's files; test/studio/page_test.py looks at the page itself.
#include <algorithm>
#include <cmath>
#include <limits>

#include <catch2/catch.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <sys/wait.h>

#include "base/error.h"
#include "cli/program.h"
#include "report/page.h"
#include "report/rows_page.h"
#include "report/run_files.h"
#include "report/run_json.h"

namespace automodel::report {
namespace {

using nlohmann::json;

std::size_t count(const std::string& text, const std::string& part) {
  std::size_t out = 0;
  for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++out;
  return out;
}

/// A run of `steps` steps that was restarted with another learning rate and had a bad step; its last line is cut off.
void write_run(const test::TemporaryFolder& folder, const std::string& name, int steps) {
  std::string training;
  for (int step = 0; step < steps; ++step)
    training += fmt::format(
        "{{\"step\": {}, \"epoch\": 0, \"loss\": {}, \"step_time\": 2.0, \"num_tokens_per_step\": 100, "
        "\"mfu\": null}}\n",
        step, step == 7 ? "\"NaN\"" : fmt::format("{}", step == 60 ? 50.0 : 4.0 - 3.0 * step / steps));
  folder.write(name + "/training.jsonl", training + "{\"step\": 99999");
  folder.write(name + "/validation.jsonl", "{\"step\": 9, \"val_loss\": 3.5}\n{\"step\": 19, \"val_loss\": 3.25}\n");
  const auto start = [](int step, double rate) {
    const json recipe = {{"optimizer", {{"lr", rate}}}, {"seed", 1}};
    return json{{"event", "start"},
                {"timestamp", "2026-01-01T00:00:00.000Z"},
                {"step", step},
                {"ranks", 4},
                {"recipe", recipe.dump()},
                {"message", "a new run"}}
               .dump() +
           "\n";
  };
  folder.write(name + "/events.jsonl",
               start(0, 0.5) +
                   "{\"event\": \"restart\", \"step\": 14, \"cause\": \"<script>alert(1)</script>\", \"message\": "
                   "\"restart 1\"}\n" +
                   start(10, 0.25) +
                   "{\"event\": \"skip\", \"step\": 7, \"samples\": \"3 1 4\", \"message\": \"loss nan\"}\n");
  folder.write(
      name + "/estimate.json",
      R"({"predicted_step_seconds":1.5,"measured_step_seconds":2.0,"predicted_tensor_bytes":3e9,"measured_tensor_bytes":2e9})");
  folder.write(name + "/trace_5.json",
               R"({"traceEvents":[{"ph":"M","pid":0,"name":"process_name","args":{"name":"planned"}},
               {"ph":"X","pid":0,"tid":0,"name":"0F0","cat":"forward","ts":0,"dur":1000},
               {"ph":"X","pid":0,"tid":2,"name":"1F0","cat":"forward","ts":1000,"dur":3000}]})");
}

TEST_CASE("a run's files are read, with gaps for values that are not numbers") {
  test::TemporaryFolder folder;
  write_run(folder, "run", 100);
  const auto run = read_run(folder.path() / "run");
  const auto& loss = run.metrics.at("loss");
  REQUIRE(loss.steps.size() == 100);  // the incomplete line does not count
  CHECK(std::isnan(loss.values[7]));
  CHECK(run.validation.at("validation").values == std::vector<double>{3.5, 3.25});
  REQUIRE(run.events.size() == 4);
  REQUIRE(run.recipes.size() == 2);
  CHECK(run.recipes[1].first == 10);
  CHECK(run.recipes[1].second.at("optimizer.lr") == "0.25");
  REQUIRE(run.traces.size() == 1);
  CHECK(run.traces[0].lanes.at(0).makespan == Approx(0.004));
}

json shown(const test::TemporaryFolder& folder, const std::string& name) {
  return json::parse(to_json(read_run(folder.path() / name)));
}

TEST_CASE("a page has a run's data and loads nothing from outside") {
  test::TemporaryFolder folder;
  write_run(folder, "run", 100);
  const auto run = shown(folder, "run");
  CHECK(run["metrics"]["loss"]["last_step"] == 99);
  CHECK(run["metrics"]["num_tokens_per_step"]["sum"] == 10000);
  CHECK_FALSE(run["metrics"].contains("mfu"));  // no values
  CHECK(run["validation"]["validation"]["buckets"][1] == json({19, 19, 3.25, 3.25, 3.25}));
  CHECK(run["recipes"][0]["keys"]["optimizer.lr"] == "0.5");
  CHECK(run["recipes"][1]["keys"]["optimizer.lr"] == "0.25");
  CHECK(run["events"][3]["fields"] == json::array({json::array({"samples", "3 1 4"})}));
  CHECK(run["traces"][0]["lanes"][0]["bars"][1] == json({1, 1, 0.001, 0.004, "forward", "1F0"}));
  CHECK(run["estimate"][0] == json({{"what", "time per step"}, {"planned", 1.5}, {"measured", 2.0}, {"bytes", false}}));
  const auto page = report_page({read_run(folder.path() / "run")});
  CHECK(page.find("prefers-color-scheme:dark") != std::string::npos);
  CHECK(page.find("width=device-width") != std::string::npos);
  for (const char* outside : {"https:", "src=", "<link", "@import", "url("}) {
    INFO(outside);
    CHECK(page.find(outside) == std::string::npos);
  }
  // What is in files stays text.
  CHECK(page.find("<script>alert") == std::string::npos);
  CHECK(count(page, "<script") == 1);
}

/// Times of `ranks` ranks; rank 1 computes twice as long and is reported as slow. The last line is cut off.
void write_ranks(const test::TemporaryFolder& folder, const std::string& name, int records, int ranks) {
  std::string lines;
  for (int record = 0; record < records; ++record) {
    json line = {{"step", 20 * record + 19}, {"steps", 20}};
    for (int rank = 0; rank < ranks; ++rank) {
      line["data"].push_back(0.01);
      line["compute"].push_back(rank == 1 ? 0.8 : 0.4);
      line["gradients"].push_back(0.05);
      line["optimizer"].push_back(0.04);
      line["waiting"].push_back(rank == 1 ? 0.0 : 0.4);
    }
    lines += line.dump() + "\n";
  }
  folder.write(name + "/ranks.jsonl", lines + "{\"step\": 3");
  folder.write(name + "/events.jsonl",
               "{\"event\": \"slow-rank\", \"step\": 39, \"rank\": 1, \"host\": \"<b>\", \"phase\": \"compute\", "
               "\"message\": \"rank 1 is slow\"}\n");
}

TEST_CASE("a page has bars and lines per rank and phase, and marks slow ranks") {
  test::TemporaryFolder folder;
  write_run(folder, "run", 100);
  CHECK(shown(folder, "run")["ranks"].is_null());
  write_ranks(folder, "run", 5, 4);
  const auto run = read_run(folder.path() / "run");
  REQUIRE(run.ranks[1].size() == 4);
  CHECK(run.ranks[1][1].steps == std::vector<std::int64_t>{19, 39, 59, 79, 99});
  CHECK(run.ranks[1][1].values == std::vector<double>(5, 0.8));
  const auto ranks = shown(folder, "run")["ranks"];
  REQUIRE(ranks["bars"].size() == 4);
  CHECK(ranks["bars"][1]["slow"] == "slow: <b>, compute");
  CHECK(ranks["bars"][0]["slow"] == "");
  CHECK(ranks["bars"][0]["seconds"][1].get<double>() == Approx(0.4));
  REQUIRE(ranks["phases"].size() == 5);
  for (const auto& phase : ranks["phases"]) {
    REQUIRE(phase["lines"].size() == 4);  // without a median
    CHECK(phase["lines"][1]["name"] == "rank 1 (slow: <b>, compute)");
    CHECK(phase["lines"][1]["buckets"].size() == 5);
  }
  write_ranks(folder, "run", 2, 4);  // two records are bars without charts
  const auto few = shown(folder, "run")["ranks"];
  CHECK(few["bars"].size() == 4);
  CHECK(few["phases"][0]["lines"].empty());
}

TEST_CASE("of a thousand ranks a page has the slow one, the longest bars and the median") {
  test::TemporaryFolder folder;
  write_run(folder, "run", 100);
  write_ranks(folder, "run", 100, 1000);
  const auto ranks = shown(folder, "run")["ranks"];
  CHECK(ranks["total"] == 1000);
  REQUIRE(ranks["bars"].size() == 64);
  CHECK(ranks["bars"][1]["rank"] == 1);
  const auto& lines = ranks["phases"][1]["lines"];
  REQUIRE(lines.size() == 7);
  CHECK(lines[6]["name"] == "median of 1000 ranks");
  CHECK(lines[6]["median"] == true);
  CHECK(lines[6]["buckets"][0][3].get<double>() == Approx(0.4));
}

TEST_CASE("a page of a hundred thousand steps stays small and keeps every peak") {
  test::TemporaryFolder folder;
  write_run(folder, "run", 100000);
  const auto run = read_run(folder.path() / "run");
  const auto buckets = buckets_of(run.metrics.at("loss"), 500);
  CHECK(buckets.size() == 500);
  CHECK(buckets.front().first == 0);
  CHECK(buckets.back().last == 99999);
  CHECK(buckets[0].high == 50);
  int points = 0;
  for (const auto& bucket : buckets) points += bucket.count;
  CHECK(points == 99999);  // all but the gap
  CHECK(to_json(run).size() < 150000);
}

TEST_CASE("a start event without a recipe keeps the recipe of an earlier start") {
  test::TemporaryFolder folder;
  folder.write("run/training.jsonl", "{\"step\": 0, \"loss\": 1.0}\n");
  folder.write("run/events.jsonl",
               "{\"event\": \"start\", \"recipe\": \"{\\\"seed\\\": 1}\", \"step\": 4}\n"
               "{\"event\": \"start\", \"step\": 9}\n");
  const auto run = read_run(folder.path() / "run");
  REQUIRE(run.recipes.size() == 1);
  CHECK(run.recipes[0].first == 4);
}

TEST_CASE("traces of other tools give no lanes, whatever the types of their fields") {
  const auto lanes_of = [](const std::string& events) {
    const std::string name = R"({"ph":"M","pid":0,"name":"process_name","args":{"name":"planned"}})";
    return read_trace(fmt::format(R"({{"traceEvents":[{},{}]}})", name, events), "trace.json").lanes.size();
  };
  const std::string good = R"({"ph":"X","pid":0,"tid":0,"ts":1,"dur":1,"name":"0F0","cat":"forward"})";
  CHECK(lanes_of(good) == 1);
  for (const char* event : {R"({"ph":"X","pid":"Spark","tid":0,"ts":1,"dur":1,"name":"a","cat":"forward"})",
                            R"({"ph":"X","pid":4294967296,"tid":0,"ts":1,"dur":1,"name":"a","cat":"forward"})",
                            R"({"ph":"X","pid":0,"tid":"python","ts":1,"dur":1,"name":"a","cat":"forward"})",
                            R"({"ph":"X","pid":0,"tid":-3,"ts":1,"dur":1,"name":"a","cat":"forward"})",
                            R"({"ph":"X","pid":0,"tid":140163,"ts":1,"dur":1,"name":"a","cat":"forward"})",
                            R"({"ph":"X","pid":0,"tid":0,"ts":"1","dur":1,"name":"a","cat":"forward"})",
                            R"({"ph":"X","pid":0,"tid":0,"ts":1,"dur":null,"name":"a","cat":"forward"})",
                            R"({"ph":"X","pid":0,"tid":0,"ts":1,"dur":1,"name":7,"cat":"forward"})",
                            R"({"ph":"X","pid":0,"tid":0,"ts":1,"dur":1,"name":"a","cat":[]})",
                            R"({"ph":"X","pid":0,"tid":0,"ts":1,"dur":1,"name":"a","cat":"cpu_op"})",
                            R"({"ph":"X","pid":0,"tid":0,"ts":1})", R"({"ph":1,"pid":0})", R"({"ph":"M"})", "3"}) {
    INFO(event);
    CHECK(lanes_of(event) == 0);
    CHECK(lanes_of(good + "," + event) == 0);
  }
  for (const char* event : {R"({"ph":"M","pid":1,"name":"process_name"})", R"({"ph":"M","pid":1,"name":3})",
                            R"({"ph":"M","pid":1,"name":"process_name","args":{"name":5}})",
                            R"({"ph":"M","pid":1,"name":"process_name","args":[]})"}) {
    INFO(event);
    CHECK(lanes_of(event) == 0);
  }
}

TEST_CASE("a page of rows holds strangers' text as text, and no script") {
  using enum RowPart::Kind;
  const std::string attack = "</script></div><img src=x onerror=\"alert(1)\">&\u202e";
  const auto page =
      rows_page(attack, attack,
                {{.title = attack,
                  .note = attack,
                  .pictures = {{.caption = attack, .bytes = "\x89PNG", .media = "image/png", .upright = false},
                               {.caption = "left out"}},
                  .parts = {{kContext, attack}, {kLabel, "a\n" + attack}, {kPadding, attack}, {kPicture, attack}}}});
  CHECK(count(page, "<script") == 0);
  CHECK(count(page, "onerror=\"") == 0);
  CHECK(count(page, "<img") == 1);
  // The title is in the head, too.
  CHECK(count(page, "&lt;/script&gt;&lt;/div&gt;&lt;img src=x onerror=&quot;alert(1)&quot;&gt;&amp;") == 10);
  CHECK(count(page, "\u202e") == 1);  // of the page's own title, which only a browser's frame shows
  CHECK(count(page, "<img alt=\"\" class=\"unturned\" src=\"data:image/png;base64,iVBORw==\">") == 1);
  CHECK(count(page, "<figure class=\"gone\"><figcaption>left out</figcaption></figure>") == 1);
  CHECK(count(page, "<mark>a<i>\u21b5</i>\n&lt;/script") == 1);
  // What is not of the page itself is not loaded, whatever is in it.
  CHECK(count(page, "content=\"default-src 'none'; img-src data:; style-src 'unsafe-inline'\"") == 1);
}

TEST_CASE("automodel report writes the page and refuses a folder without a run") {
  test::TemporaryFolder folder;
  write_run(folder, "run", 20);
  folder.write("run/profile.json", R"({"traceEvents":[{"ph":"X","pid":"Spark","tid":"0","ts":"now"}]})");
  CHECK(test::run_program(folder, "report run").out == "run/report.html\n");
  CHECK(folder.read("run/report.html").starts_with("<!doctype html>"));
  CHECK(test::run_program(folder, "report run run -o both.html").code == 0);
  CHECK(folder.read("both.html").find("run, run") != std::string::npos);
  const auto none = test::run_program(folder, "report nowhere");
  CHECK(none.code == 2);
  CHECK(none.err.find("error[missing-file]: there is no training.jsonl in 'nowhere'") != std::string::npos);
}

}  // namespace
}  // namespace automodel::report
