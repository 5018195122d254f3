#include "report/rank_phases.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>
#include <numeric>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/bytes.h"
#include "base/median.h"
#include "report/chart.h"
#include "report/html.h"
#include "report/run_files.h"

namespace automodel::report {
namespace {

constexpr std::size_t kLines = 6;          // ranks per chart
constexpr std::size_t kBars = 64;          // ranks with a bar
constexpr std::size_t kLineBuckets = 120;  // per line: each of the five charts has several
constexpr double kBarWide = 1000, kBarHigh = 20;
constexpr std::array kPhaseColors = {3, 0, 1, 2, 7};  // indexed by phase

double mean_of(const Column& column) {
  double total = 0;
  std::size_t count = 0;
  for (const double value : column.values) {
    if (!std::isfinite(value)) continue;
    total += value;
    ++count;
  }
  return count > 0 ? total / static_cast<double>(count) : 0;
}

/// The greatest finite value; 0 if there is none.
double most_of(const std::vector<Column>& ranks) {
  double out = 0;
  for (const auto& rank : ranks)
    for (const double value : rank.values)
      if (std::isfinite(value)) out = std::max(out, value);
  return out;
}

double own_work(const RankColumns& columns, std::size_t rank) {
  double out = 0;
  for (std::size_t phase = 0; phase < kOwnPhases; ++phase) out += mean_of(columns[phase][rank]);
  return out;
}

/// Host and phase of each rank that a slow-rank event named.
std::map<std::size_t, std::string> slow_ranks(const RunFiles& run) {
  std::map<std::size_t, std::string> out;
  for (const auto& event : run.events) {
    if (event.event != "slow-rank") continue;
    std::map<std::string, std::string> fields(event.fields.begin(), event.fields.end());
    const auto& rank = fields["rank"];
    if (rank.empty() || rank.size() > 9 || !std::ranges::all_of(rank, [](char c) { return c >= '0' && c <= '9'; }))
      continue;
    out.try_emplace(std::stoul(rank), fmt::format("slow: {}, {}", fields["host"], fields["phase"]));
  }
  return out;
}

/// The slow ranks and, among the others, those with the most work of their own; in rank order.
std::vector<std::size_t> chosen(const RankColumns& columns, const std::map<std::size_t, std::string>& slow,
                                std::size_t most) {
  std::vector<std::size_t> out(columns[0].size());
  std::iota(out.begin(), out.end(), std::size_t{0});
  if (out.size() <= most) return out;
  std::vector<double> work;
  for (const auto rank : out) work.push_back(own_work(columns, rank));
  std::ranges::stable_sort(out, [&](std::size_t a, std::size_t b) {
    return std::pair(slow.contains(a), work[a]) > std::pair(slow.contains(b), work[b]);
  });
  out.resize(most);
  std::ranges::sort(out);
  return out;
}

std::string rank_bars(const RankColumns& columns, const std::map<std::size_t, std::string>& slow) {
  const auto ranks = chosen(columns, slow, kBars);
  double longest = 0;
  for (const auto rank : ranks) {
    double all = 0;
    for (const auto& phase : columns) all += mean_of(phase[rank]);
    longest = std::max(longest, all);
  }
  if (longest <= 0) return "";
  std::string out = "<p class=\"legend\">";
  for (std::size_t phase = 0; phase < kRankPhases.size(); ++phase)
    out += fmt::format(R"(<span class="key c{}">{}</span>)", kPhaseColors[phase], kRankPhases[phase].title);
  out += slow.empty() ? "</p>\n" : "<span>&#9650; was named as slow</span></p>\n";
  out += "<div class=\"bars\">\n";
  for (const auto rank : ranks) {
    double at = 0;
    std::string pieces;
    for (std::size_t phase = 0; phase < kRankPhases.size(); ++phase) {
      const double seconds = mean_of(columns[phase][rank]), wide = kBarWide * seconds / longest;
      pieces +=
          fmt::format(R"(<rect class="b{}" x="{:.1f}" width="{:.1f}" height="{:.0f}"><title>{}: {}</title></rect>)",
                      kPhaseColors[phase], at, wide, kBarHigh, kRankPhases[phase].title, format_seconds(seconds));
      at += wide;
    }
    const auto found = slow.find(rank);
    const auto mark =
        found == slow.end() ? "" : fmt::format(R"(<b class="slow" title="{}">&#9650;</b>)", escaped(found->second));
    out += fmt::format(
        "<div class=\"lane rank\"><span>rank {}{}</span><svg viewBox=\"0 0 {:.0f} {:.0f}\" "
        "preserveAspectRatio=\"none\" role=\"img\" aria-label=\"rank {}\">{}</svg><span>{}</span></div>\n",
        rank, mark, kBarWide, kBarHigh, rank, pieces, format_seconds(longest * at / kBarWide));
  }
  out += "</div>\n";
  if (ranks.size() < columns[0].size())
    out += fmt::format("<p>{} of {} ranks: those that work longest.</p>\n", ranks.size(), columns[0].size());
  return out;
}

/// The median over the ranks that have a finite value at a step.
Column median_of(const std::vector<Column>& ranks) {
  std::map<std::int64_t, std::vector<double>> by_step;
  for (const auto& rank : ranks)
    for (std::size_t i = 0; i < rank.steps.size(); ++i)
      if (std::isfinite(rank.values[i])) by_step[rank.steps[i]].push_back(rank.values[i]);
  Column out;
  for (auto& [step, values] : by_step) {
    out.steps.push_back(step);
    out.values.push_back(median(values));
  }
  return out;
}

}  // namespace

RankColumns read_ranks(const std::filesystem::path& path) {
  RankColumns out;
  std::size_t ranks = 0;
  std::ifstream file(path, std::ios::binary);
  for (std::string line; std::getline(file, line);) {
    const auto json = nlohmann::json::parse(line, nullptr, false);
    if (!json.is_object() || !json.contains("step") || !json["step"].is_number_integer()) continue;
    for (std::size_t phase = 0; phase < out.size(); ++phase) {
      const auto found = json.find(kRankPhases[phase].key);
      if (found == json.end() || !found->is_array()) continue;
      auto& columns = out[phase];
      if (columns.size() < found->size()) columns.resize(found->size());
      for (std::size_t rank = 0; rank < found->size(); ++rank) {
        columns[rank].steps.push_back(json["step"].get<std::int64_t>());
        columns[rank].values.push_back((*found)[rank].is_number() ? (*found)[rank].get<double>() : std::nan(""));
      }
      ranks = std::max(ranks, columns.size());
    }
  }
  for (auto& columns : out) columns.resize(ranks);
  return out;
}

std::string rank_phases_html(const RunFiles& run) {
  if (run.ranks[0].empty()) return "";
  const auto& columns = run.ranks;
  const auto slow = slow_ranks(run);
  const auto ranks = chosen(columns, slow, kLines);
  std::vector<Mark> marks;
  for (const auto& event : run.events)
    if (event.event == "slow-rank" && event.step >= 0) marks.push_back({event.step, event.message});
  // Two records make a line, but show no course.
  const bool has_course = columns[0][0].steps.size() > 2;
  std::string out = fmt::format("<h2>Ranks</h2>\n<p>Time per step by phase and rank, averaged over the run{}.</p>\n",
                                has_course ? "; then each phase over the steps" : "");
  out += rank_bars(columns, slow);
  if (!has_course) return out;
  out += "<div class=\"charts\">\n";
  for (std::size_t phase = 0; phase < kRankPhases.size(); ++phase) {
    // An axis that would read 8e-05 is in milliseconds.
    const bool small = most_of(columns[phase]) < 0.1;
    auto shown = columns[phase];
    if (small)
      for (auto& column : shown)
        for (double& value : column.values) value *= 1000;
    Chart chart{.key = fmt::format("ranks.{}", kRankPhases[phase].key),
                .title = fmt::format("{}, {} per step", kRankPhases[phase].title, small ? "ms" : "seconds"),
                .marks = marks,
                .buckets = kLineBuckets};
    const auto median_column = median_of(shown);
    for (std::size_t i = 0; i < ranks.size(); ++i) {
      const auto found = slow.find(ranks[i]);
      const auto name = fmt::format("rank {}{}", ranks[i], found == slow.end() ? "" : " (" + found->second + ")");
      chart.series.push_back({name, static_cast<int>(i), &shown[ranks[i]]});
    }
    if (ranks.size() < shown.size())
      chart.series.push_back({fmt::format("median of {} ranks", shown.size()), 7, &median_column});
    out += to_html(chart);
  }
  return out + "</div>\n";
}

}  // namespace automodel::report
