#include "failures.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/bytes.h"
#include "base/json_writer.h"
#include "base/text_table.h"
#include "config/environment.h"
#include "report.h"

namespace automodel::app {
namespace {

constexpr int kMostLost = 4;  // hosts

struct AfterLoss {
  int lost = 0;  ///< hosts
  int ranks_left = 0;
  int ranks = 0;  ///< that the plan uses
  std::optional<plan::TrainingPlan> plan = {};
  double step() const { return plan && plan->estimate ? plan->estimate->time.step : 0; }
  double peak() const { return plan->estimate->memory.peak(); }
  std::string fits() const {
    if (!plan || !plan->estimate) return "";
    return std::string(plan->estimate->memory.fit == plan::Fit::kDoesNotFit ? "does not fit"
                       : plan->estimate->memory.fit == plan::Fit::kUnknown  ? "memory unknown"
                                                                            : "fits");
  }
};

/// The recipe with another data-parallel size; hybrid sharding keeps its groups where they still divide.
std::optional<plan::TrainingPlan> with_dp(const config::LoadedRecipe& loaded, plan::PlanRequest request, int dp,
                                          int ranks) {
  const std::vector<config::Override> smaller = {{"distributed.dp_size", std::to_string(dp), "--failures"}};
  const auto changed = config::read_again(loaded, smaller, config::process_environment());
  if (!changed.problems.empty()) return std::nullopt;
  request.world_size = ranks;
  return plan::make_plan(changed, request).plan;
}

AfterLoss row_for(const config::LoadedRecipe& loaded, const plan::PlanRequest& request, const plan::TrainingPlan& whole,
                  int lost, int left) {
  AfterLoss out{.lost = lost, .ranks_left = left};
  const int rest = whole.mesh.world_size() / whole.mesh.size(mesh::kDp);  // ranks of one data-parallel coordinate
  for (int dp = left / rest; dp >= 1 && !out.plan; --dp) {
    out.plan = with_dp(loaded, request, dp, dp * rest);
    out.ranks = dp * rest;
  }
  return out;
}

std::string table_of_losses(const std::vector<AfterLoss>& rows, const plan::TrainingPlan& whole, int per_host) {
  TextTable table(
      {"lost hosts", "ranks left", "ranks used", "dp", "accumulation", "step", "slower", "peak memory", ""});
  for (const auto& row : rows) {
    if (!row.plan) {
      table.add({std::to_string(row.lost), std::to_string(row.ranks_left), "", "", "", "", "", "",
                 "no mesh: fewer ranks than pp x cp x tp need; plan --search finds others"});
      continue;
    }
    const bool timed = row.plan->estimate && whole.estimate;
    table.add({std::to_string(row.lost), std::to_string(row.ranks_left), std::to_string(row.ranks),
               std::to_string(row.plan->mesh.size(mesh::kDp)), std::to_string(row.plan->batch.runs),
               timed ? fmt::format("{:.1f} ms", 1e3 * row.step()) : "",
               timed ? fmt::format("{:.2f} x", row.step() / whole.estimate->time.step) : "",
               timed ? format_bytes(row.peak()) : "", row.fits()});
  }
  return fmt::format("{} ranks on {} hosts of {}; the global batch of {} sequences stays\n", whole.mesh.world_size(),
                     whole.mesh.world_size() / per_host, per_host, whole.batch.global) +
         table.text() +
         "  what is left goes on with: automodel train RECIPE --distributed.dp_size DP, from the newest checkpoint\n";
}

std::string json_of_losses(const std::vector<AfterLoss>& rows, const plan::TrainingPlan& whole) {
  JsonWriter json;
  json.begin_object();
  json.member("world_size", whole.mesh.world_size());
  json.key("failures");
  json.begin_array();
  for (const auto& row : rows) {
    json.begin_object();
    json.member("lost_hosts", row.lost);
    json.member("ranks_left", row.ranks_left);
    json.member("ok", row.plan.has_value());
    if (row.plan) {
      json.member("ranks_used", row.ranks);
      json.member("dp_size", row.plan->mesh.size(mesh::kDp));
      json.member("accumulation", row.plan->batch.runs);
      json.member("global_batch_size", row.plan->batch.global);
    }
    if (row.plan && row.plan->estimate && whole.estimate) {
      json.member("step_seconds", row.step());
      json.member("slower", row.step() / whole.estimate->time.step);
      json.member("peak_bytes", row.peak());
      json.member("fit", row.fits());
    }
    json.end_object();
  }
  json.end_array();
  json.end_object();
  return json.take() + "\n";
}

}  // namespace

int plan_failures(const Options& options, const config::LoadedRecipe& loaded, plan::PlanRequest request) {
  const auto base = plan::make_plan(loaded, request);
  if (!base.plan) return refuse(base.problems, loaded, options.json, base.exit);
  const auto& whole = *base.plan;
  const int world = whole.mesh.world_size();
  const int per_host =
      options.gpus_per_node.value_or(std::min(world, whole.estimate ? whole.estimate->hardware.per_node : world));
  if (world % per_host != 0 || world == per_host)
    throw wrong_words(fmt::format("{} ranks are not several hosts of {}", world, per_host),
                      "--world-size and --gpus-per-node say how many ranks there are, and how many a host has");
  std::vector<AfterLoss> rows;
  for (int lost = 1; lost <= std::min(kMostLost, world / per_host - 1); ++lost)
    rows.push_back(row_for(loaded, request, whole, lost, world - lost * per_host));
  out(options.json ? json_of_losses(rows, whole) : table_of_losses(rows, whole, per_host));
  return code(ExitCode::kOk);
}

}  // namespace automodel::app
