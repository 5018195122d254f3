#include "report/run_json.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include <fmt/format.h>

#include "base/json_writer.h"
#include "base/median.h"

namespace automodel::report {
namespace {

constexpr std::size_t kBuckets = 500, kPoints = 200;  // of a line, and of validations, which are dots
constexpr std::size_t kLines = 6;                     // ranks per chart
constexpr std::size_t kBars = 64;                     // ranks with a bar
constexpr std::size_t kLineBuckets = 120;             // of a rank's line: each of five charts has several

void write_buckets(JsonWriter& json, const Column& column, std::size_t most) {
  json.key("buckets");
  json.begin_array();
  for (const auto& bucket : buckets_of(column, most)) {
    json.begin_array();
    json.value(bucket.first);
    json.value(bucket.last);
    for (const double value : {bucket.low, bucket.mean, bucket.high})
      json.value(std::stod(fmt::format("{:.6g}", value)));
    json.end_array();
  }
  json.end_array();
}

void write_columns(JsonWriter& json, const std::map<std::string, Column>& columns, std::size_t most) {
  json.begin_object();
  for (const auto& [key, column] : columns) {
    double sum = 0, last = std::nan("");
    for (const double value : column.values)
      if (std::isfinite(value)) sum += last = value;
    if (std::isnan(last)) continue;  // there is nothing to see
    json.key(key);
    json.begin_object();
    json.member("last_step", column.steps.back());
    json.member("last", last);
    json.member("sum", sum);
    write_buckets(json, column, most);
    json.end_object();
  }
  json.end_object();
}

void write_events(JsonWriter& json, const std::vector<RunEvent>& events) {
  json.begin_array();
  for (const auto& event : events) {
    json.begin_object();
    json.member("event", event.event);
    json.member("time", event.time);
    json.member("step", event.step);
    json.member("message", event.message);
    json.key("fields");
    json.begin_array();
    for (const auto& [name, value] : event.fields) json.value(std::vector<std::string>{name, value});
    json.end_array();
    json.end_object();
  }
  json.end_array();
}

void write_recipes(JsonWriter& json, const RunFiles& run) {
  json.begin_array();
  for (const auto& [step, keys] : run.recipes) {
    json.begin_object();
    json.member("step", step);
    json.key("keys");
    json.begin_object();
    for (const auto& [key, value] : keys) json.member(key, value);
    json.end_object();
    json.end_object();
  }
  json.end_array();
}

void write_estimate(JsonWriter& json, const RunFiles& run) {
  json.begin_array();
  for (const auto& each : run.estimate) {
    json.begin_object();
    json.member("what", each.what);
    json.member("planned", each.planned);
    json.member("measured", each.measured);
    json.member("bytes", each.bytes);
    json.end_object();
  }
  json.end_array();
}

void write_lanes(JsonWriter& json, const Lanes& lanes) {
  json.begin_object();
  json.member("name", lanes.name);
  json.member("ranks", lanes.ranks);
  json.member("makespan", lanes.makespan);
  json.key("bars");
  json.begin_array();
  for (const auto& bar : lanes.bars) {
    if (bar.end <= bar.begin) continue;
    json.begin_array();
    json.value(bar.rank);
    json.value(bar.compute ? 1 : 0);
    json.value(bar.begin);
    json.value(bar.end);
    json.value(bar.kind);
    json.value(bar.name);
    json.end_array();
  }
  json.end_array();
  json.end_object();
}

void write_traces(JsonWriter& json, const RunFiles& run) {
  json.begin_array();
  for (const auto& trace : run.traces) {
    json.begin_object();
    json.member("file", trace.file);
    json.key("lanes");
    json.begin_array();
    for (const auto& lanes : trace.lanes) write_lanes(json, lanes);
    json.end_array();
    json.end_object();
  }
  json.end_array();
}

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

void write_line(JsonWriter& json, const std::string& name, const Column& column, bool median) {
  json.begin_object();
  json.member("name", name);
  json.member("median", median);
  write_buckets(json, column, kLineBuckets);
  json.end_object();
}

void write_ranks(JsonWriter& json, const RunFiles& run) {
  const auto& columns = run.ranks;
  if (columns[0].empty()) return json.value(nullptr);
  const auto slow = slow_ranks(run);
  json.begin_object();
  json.member("total", columns[0].size());
  json.key("bars");
  json.begin_array();
  for (const auto rank : chosen(columns, slow, kBars)) {
    json.begin_object();
    json.member("rank", rank);
    const auto found = slow.find(rank);
    json.member("slow", found == slow.end() ? "" : found->second);
    json.key("seconds");
    json.begin_array();
    for (const auto& phase : columns) json.value(mean_of(phase[rank]));
    json.end_array();
    json.end_object();
  }
  json.end_array();
  json.key("phases");
  json.begin_array();
  const auto lines = chosen(columns, slow, kLines);
  for (std::size_t phase = 0; phase < kRankPhases.size(); ++phase) {
    json.begin_object();
    json.member("key", kRankPhases[phase].key);
    json.member("title", kRankPhases[phase].title);
    json.key("lines");
    json.begin_array();
    // Two records make a line, but show no course.
    if (columns[0][0].steps.size() > 2) {
      for (const auto rank : lines) {
        const auto found = slow.find(rank);
        write_line(json, fmt::format("rank {}{}", rank, found == slow.end() ? "" : " (" + found->second + ")"),
                   columns[phase][rank], false);
      }
      if (lines.size() < columns[phase].size())
        write_line(json, fmt::format("median of {} ranks", columns[phase].size()), median_of(columns[phase]), true);
    }
    json.end_array();
    json.end_object();
  }
  json.end_array();
  json.end_object();
}

}  // namespace

std::vector<Bucket> buckets_of(const Column& column, std::size_t most) {
  std::vector<Bucket> out;
  const auto count = column.steps.size();
  std::size_t last = 0;  // position of the newest bucket
  for (std::size_t i = 0; i < count; ++i) {
    const double value = column.values[i];
    if (!std::isfinite(value)) continue;
    const auto place = count <= most ? i : i * most / count;
    if (out.empty() || place != last) out.push_back({column.steps[i], column.steps[i], value, 0, value, 0});
    last = place;
    auto& bucket = out.back();
    bucket.last = column.steps[i];
    bucket.low = std::min(bucket.low, value);
    bucket.high = std::max(bucket.high, value);
    bucket.mean += (value - bucket.mean) / ++bucket.count;
  }
  return out;
}

std::string to_json(const RunFiles& run) {
  JsonWriter json;
  json.begin_object();
  json.member("name", run.name);
  json.key("metrics");
  write_columns(json, run.metrics, kBuckets);
  json.key("validation");
  write_columns(json, run.validation, kPoints);
  json.key("events");
  write_events(json, run.events);
  json.key("recipes");
  write_recipes(json, run);
  json.key("estimate");
  write_estimate(json, run);
  json.key("traces");
  write_traces(json, run);
  json.key("ranks");
  write_ranks(json, run);
  json.end_object();
  return json.take();
}

}  // namespace automodel::report
