#include "failures.h"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/bytes.h"
#include "base/json_writer.h"
#include "base/text_table.h"
#include "estimate/estimated_plan.h"
#include "estimate/failures.h"
#include "report.h"

namespace automodel::app {
namespace {

constexpr int kMostLost = 4;  // hosts
constexpr double kDay = 86400;

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

AfterLoss row_for(estimate::SmallerPlans& plans, int lost, int hosts, int per_host) {
  AfterLoss out{.lost = lost, .ranks_left = hosts * per_host};
  const auto& smaller = plans.on_hosts(hosts);
  if (!smaller) return out;
  out.ranks = smaller->plan.mesh.world_size();
  out.words = smaller->words;
  out.plan = smaller->plan;
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
  if (rows.empty()) return "";
  return fmt::format("{} ranks on {} hosts of {}; the global batch stays at {} sequences; lost: hosts\n",
                     whole.mesh.world_size(), whole.mesh.world_size() / per_host, per_host, whole.batch.global) +
         table.text() +
         (others.empty() ? "" : "meshes that differ from the recipe's in more than dp_size:\n" + others) +
         "  train --max-restarts N --min-ranks M continues this way automatically; by hand: --distributed.dp_size DP\n";
}

std::string percent(double share) {
  return fmt::format("{:.{}f}%", 100 * share, share > 0.995 ? 2 : 1);
}

std::string days(double seconds) {
  return fmt::format("{:.3g}", seconds / kDay);
}

std::string table_of_remedies(const estimate::MonthPlan& month) {
  TextTable table({"each on its own", "new steps", "end, days", "10%", "90%"});
  const auto add = [&](const std::string& what, const estimate::RunOutcome& run) {
    if (!run.ends)
      table.add({what, percent(run.goodput), "never"});
    else
      table.add({what, percent(run.goodput), days(run.end.middle), days(run.end.low), days(run.end.high)});
  };
  add("as it is", month.outcome);
  for (const auto& each : month.remedies)
    add(each.value.empty() ? each.key : each.key + "=" + each.value, each.outcome);
  return table.text();
}

std::string text_of_month(const estimate::MonthPlan& month, const config::Recipe& recipe) {
  const auto& run = month.run;
  const auto& made = month.outcome;
  const double undisturbed = static_cast<double>(run.steps) * run.step;
  std::string out =
      fmt::format("{} steps of {}{}: {} days without failures and saves\n", run.steps, format_seconds(run.step),
                  month.given_steps ? "" : " (as the recipe gives no max_steps)", days(undisturbed));
  if (run.rate() > 0)
    out += fmt::format(
        "failures  one in {} (hardware.failures): GPUs {:.2g}, hosts {:.2g}, network {:.2g}, software {:.2g} a day\n",
        format_seconds(1 / run.rate()), kDay * run.hosts * run.rates[0], kDay * run.hosts * run.rates[1],
        kDay * run.hosts * run.rates[2], kDay * run.hosts * run.rates[3]);
  else
    out += "failures  none (hardware.failures)\n";
  const auto saves = [&](const char* name, const estimate::Saves& each, const std::string& none) {
    if (each.every == 0) return fmt::format("{}{}\n", name, none);
    return fmt::format("{}every {} ({}), each delays a step by {}{}\n", name,
                       each.every == 1 ? "step" : fmt::format("{} steps", each.every),
                       format_seconds(static_cast<double>(each.every) * run.step), format_seconds(each.waiting),
                       each.background > 0 ? " and is complete " + format_seconds(each.background) + " later" : "");
  };
  out += saves("saves     ", run.checkpoints, "none: each failure begins the run anew");
  out += saves("copies    ", run.copies, "none in memory (checkpoint.memory_every_steps)");
  if (!made.ends)
    return out + "run       makes no more progress: failures are too frequent for its saves and restarts\n";
  out += fmt::format(
      "run       {} of the time makes new steps; ends after {} days (10% of runs within {}, 90% within {})\n",
      percent(made.goodput), days(made.end.middle), days(made.end.low), days(made.end.high));
  out += fmt::format(
      "          the rest: saving {}, steps made again {}, restarts {}, waiting for hosts {}, fewer hosts {}\n",
      percent(made.saving / made.total), percent(made.again / made.total), percent(made.restarting / made.total),
      percent(made.waiting / made.total), percent(made.slower / made.total));
  out += fmt::format("          {:.1f} interruptions (10% of runs have {:.0f} or fewer, 90% {:.0f})",
                     made.mean_interruptions, made.interruptions.low, made.interruptions.high);
  const int restarts = recipe.fault_tolerance->max_restarts();
  out +=
      restarts >= made.interruptions.high
          ? "\n"
          : fmt::format("; fault_tolerance.max_restarts is {}: beyond that somebody must start it again\n", restarts);
  return out;
}

void write_outcome(JsonWriter& json, const estimate::RunOutcome& run) {
  const auto spread = [&](const char* name, const estimate::Spread& each) {
    json.key(name);
    json.begin_array();
    for (const double value : {each.low, each.middle, each.high}) json.value(value);
    json.end_array();
  };
  json.member("ends", run.ends);
  json.member("goodput", run.goodput);
  spread("end_seconds", run.end);
  spread("interruptions", run.interruptions);
  json.member("mean_interruptions", run.mean_interruptions);
  json.member("mean_seconds", run.total);
  json.member("saving_seconds", run.saving);
  json.member("again_seconds", run.again);
  json.member("restart_seconds", run.restarting);
  json.member("waiting_seconds", run.waiting);
  json.member("slower_seconds", run.slower);
}

void write_month(JsonWriter& json, const estimate::MonthPlan& month) {
  const auto& run = month.run;
  json.key("run");
  json.begin_object();
  json.member("steps", run.steps);
  json.member("step_seconds", run.step);
  json.member("hosts", run.hosts);
  json.member("failures_per_day", kDay * run.rate());
  const auto saves = [&](const char* name, const estimate::Saves& each) {
    json.key(name);
    json.begin_object();
    json.member("every_steps", each.every);
    json.member("waiting_seconds", each.waiting);
    json.member("background_seconds", each.background);
    json.member("reading_seconds", each.reading);
    json.end_object();
  };
  saves("checkpoints", run.checkpoints);
  saves("copies", run.copies);
  write_outcome(json, month.outcome);
  json.key("changes");
  json.begin_array();
  for (const auto& each : month.remedies) {
    json.begin_object();
    json.member("key", each.key);
    json.member("value", each.value);
    write_outcome(json, each.outcome);
    json.end_object();
  }
  json.end_array();
  json.end_object();
}

std::string json_of_losses(const std::vector<AfterLoss>& rows, const estimate::EstimatedPlan& whole,
                           const std::optional<estimate::MonthPlan>& month) {
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
  if (month) write_month(json, *month);
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
  if (world % per_host != 0)
    throw wrong_words(fmt::format("{} ranks do not fill hosts of {} ranks each", world, per_host),
                      "--world-size gives the number of ranks, --gpus-per-node the number per host");
  estimate::SmallerPlans plans(loaded, whole, request, per_host,
                               loaded.recipe.fault_tolerance->min_ranks().value_or(1));
  std::optional<estimate::MonthPlan> month;
  if (whole.estimate) month = estimate::plan_month(loaded.recipe, whole, per_host, plans);
  std::vector<AfterLoss> rows;
  for (int lost = 1; lost <= std::min(kMostLost, world / per_host - 1); ++lost)
    rows.push_back(row_for(plans, lost, world / per_host - lost, per_host));
  if (options.json)
    out(json_of_losses(rows, whole, month));
  else
    say(table_of_losses(rows, whole, per_host) +
        (month ? text_of_month(*month, loaded.recipe) + (month->remedies.empty() ? "" : table_of_remedies(*month))
               : ""));
  return code(ExitCode::kOk);
}

}  // namespace automodel::app
