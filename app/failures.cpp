#include "failures.h"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/bytes.h"
#include "base/json_writer.h"
#include "base/text_table.h"
#include "estimate/estimated_plan.h"
#include "estimate/fewer_ranks.h"
#include "report.h"

namespace automodel::app {
namespace {

constexpr int kMostLost = 4;  // hosts

struct AfterLoss {
  int lost = 0;  ///< hosts
  int ranks_left = 0;
  int ranks = 0;                        ///< used by the plan
  std::vector<std::string> words = {};  ///< overrides that produce it
  std::optional<estimate::EstimatedPlan> plan = {};
  double step() const { return plan && plan->estimate ? plan->estimate->time.step : 0; }
  double peak() const { return plan->estimate->memory.peak(); }
  std::string fits() const {
    if (!plan || !plan->estimate) return "";
    return std::string(plan->estimate->memory.fit == estimate::Fit::kDoesNotFit ? "does not fit"
                       : plan->estimate->memory.fit == estimate::Fit::kUnknown  ? "memory unknown"
                                                                                : "fits");
  }
};

AfterLoss row_for(const config::LoadedRecipe& loaded, const estimate::PlanRequest& request,
                  const estimate::EstimatedPlan& whole, int lost, int left) {
  AfterLoss out{.lost = lost, .ranks_left = left};
  auto smaller = estimate::plan_for_fewer(loaded, whole, {.plan = request, .most = left});
  if (!smaller) return out;
  out.ranks = smaller->plan.mesh.world_size();
  out.words = std::move(smaller->words);
  out.plan = std::move(smaller->plan);
  return out;
}

std::string table_of_losses(const std::vector<AfterLoss>& rows, const estimate::EstimatedPlan& whole, int per_host) {
  TextTable table({"lost", "ranks left", "used", "dp", "accumulation", "step", "slower", "memory", ""});
  std::string others;
  for (const auto& row : rows) {
    if (!row.plan) {
      table.add({std::to_string(row.lost), std::to_string(row.ranks_left), "", "", "", "", "", "",
                 "no plan of these ranks with the same global batch fits"});
      continue;
    }
    const bool timed = row.plan->estimate && whole.estimate;
    table.add({std::to_string(row.lost), std::to_string(row.ranks_left), std::to_string(row.ranks),
               std::to_string(row.plan->mesh.size(mesh::kDp)),
               std::to_string(row.plan->batch.runs * row.plan->batch.merged), timed ? format_seconds(row.step()) : "",
               timed ? fmt::format("{:.2f} x", row.step() / whole.estimate->time.step) : "",
               timed ? format_bytes(row.peak()) : "", row.fits()});
    if (row.words.size() > 1) others += fmt::format("  {} ranks: {}\n", row.ranks, fmt::join(row.words, " "));
  }
  return fmt::format("{} ranks on {} hosts of {}; the global batch stays at {} sequences; lost: hosts\n",
                     whole.mesh.world_size(), whole.mesh.world_size() / per_host, per_host, whole.batch.global) +
         table.text() +
         (others.empty() ? "" : "meshes that differ from the recipe's in more than dp_size:\n" + others) +
         "  train --max-restarts N --min-ranks M continues this way automatically; by hand: --distributed.dp_size DP\n";
}

std::string json_of_losses(const std::vector<AfterLoss>& rows, const estimate::EstimatedPlan& whole) {
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
      json.key("overrides");
      json.begin_array();
      for (const auto& word : row.words) json.value(word);
      json.end_array();
      json.member("accumulation", row.plan->batch.runs * row.plan->batch.merged);
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

int plan_failures(const Options& options, const config::LoadedRecipe& loaded, estimate::PlanRequest request) {
  const auto base = estimate::make_plan(loaded, request);
  if (!base.plan) return refuse(base.problems, loaded, options.json);
  const auto& whole = *base.plan;
  const int world = whole.mesh.world_size();
  const int per_host =
      options.gpus_per_node.value_or(std::min(world, whole.estimate ? whole.estimate->hardware.per_node : world));
  if (world % per_host != 0 || world == per_host)
    throw wrong_words(fmt::format("{} ranks do not fill two or more hosts of {} ranks each", world, per_host),
                      "--world-size gives the number of ranks, --gpus-per-node the number per host");
  std::vector<AfterLoss> rows;
  for (int lost = 1; lost <= std::min(kMostLost, world / per_host - 1); ++lost)
    rows.push_back(row_for(loaded, request, whole, lost, world - lost * per_host));
  options.json ? out(json_of_losses(rows, whole)) : say(table_of_losses(rows, whole, per_host));
  return code(ExitCode::kOk);
}

}  // namespace automodel::app
