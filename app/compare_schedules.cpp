// `automodel plan --compare-schedules`: the recipe under every available schedule.
#include "compare_schedules.h"

#include <algorithm>
#include <deque>

#include <fmt/format.h>

#include "base/bytes.h"
#include "base/json_writer.h"
#include "base/text_table.h"
#include "commands.h"
#include "config/recipe_change.h"
#include "estimate/estimated_plan.h"
#include "estimate/search.h"
#include "report.h"
#include "schedule/generators.h"
#include "schedule/timeline_svg.h"

namespace automodel::app {
namespace {

struct Row {
  std::string name;
  int stages_per_rank = 0;  ///< 0: as a search finds it
  std::optional<estimate::EstimatedPlan> plan = {};
  std::string problem = {};  ///< why there is no plan
  double step() const { return plan && plan->estimate ? plan->estimate->time.step : 0; }
};

/// Maximum over ranks of the number of microbatches whose activations are held at once.
int in_flight(const estimate::EstimatedPlan& plan) {
  int most = 0;
  for (const auto& rank : plan.pipeline->schedule.proof.ranks) most = std::max(most, rank.in_flight);
  return most;
}

/// The numbers of stages per rank to try with a schedule.
std::vector<int> stages_of(const schedule::Generator& generator) {
  if (generator.single_stage) return {1};
  std::vector<int> out;
  for (const int count : {2, 4})
    if (count >= generator.min_stages_per_rank &&
        (generator.max_stages_per_rank == 0 || count <= generator.max_stages_per_rank))
      out.push_back(count);
  return out;
}

Row plan_with(const config::LoadedRecipe& loaded, const estimate::PlanRequest& request, Row row, int microbatch) {
  const auto changed = config::changed(loaded, [&](config::Recipe& recipe) {
    estimate::set_schedule(recipe, row.name, microbatch);
    recipe.distributed->pipeline->layers_per_stage = config::LayersPerStage{};
    recipe.model_parallel->virtual_pipeline_model_parallel_size =
        row.stages_per_rank > 0 ? std::optional(row.stages_per_rank) : std::nullopt;
  });
  Diagnostics problems;
  if (changed.problems.empty()) {
    auto result = estimate::make_plan(changed, request);
    if (result.plan) row.plan = std::move(*result.plan);
    if (row.plan && row.plan->pipeline) {
      const auto& shape = row.plan->pipeline->schedule.shape;
      row.stages_per_rank = shape.stages / shape.ranks;
    }
    problems = std::move(result.problems);
  } else {
    problems = changed.problems;
  }
  if (!row.plan) row.problem = problems.empty() ? "cannot be planned" : problems.front().message;
  return row;
}

std::string text_of(const std::vector<Row>& rows) {
  TextTable table({"schedule", "step", "tokens/s", "bubble", "in flight", "memory", ""});
  std::string refused;
  for (const auto& row : rows) {
    const auto name = row.stages_per_rank == 1 ? row.name : fmt::format("{} x{}", row.name, row.stages_per_rank);
    if (!row.plan) {
      refused += fmt::format("  {}: {}\n", name, row.problem);
      continue;
    }
    const auto& plan = *row.plan;
    std::vector<std::string> cells = {name, "", "",
                                      fmt::format("{:.1f}%", 100 * plan.pipeline->timeline.bubble_fraction),
                                      std::to_string(in_flight(plan))};
    if (plan.estimate) {
      const auto& memory = plan.estimate->memory;
      cells[1] = format_seconds(plan.estimate->time.step);
      cells[2] = format_count(plan.estimate->time.tokens_per_second);
      cells[3] = fmt::format("{:.1f}%", 100 * plan.estimate->time.bubble);
      cells.push_back(format_bytes(memory.peak()));
      if (memory.fit == estimate::Fit::kDoesNotFit) cells.emplace_back("does not fit");
    }
    table.add(std::move(cells));
  }
  return table.text() + "  x2: two stages per rank; in flight: microbatches whose activations a rank holds at once\n" +
         (refused.empty() ? "" : "refused\n" + refused);
}

std::string json_of(const std::vector<Row>& rows) {
  JsonWriter json;
  json.begin_object();
  json.key("schedules");
  json.begin_array();
  for (const auto& row : rows) {
    json.begin_object();
    json.member("schedule", row.name);
    json.member("stages_per_rank", row.stages_per_rank);
    json.member("ok", row.plan.has_value());
    if (!row.plan) json.member("reason", row.problem);
    if (row.plan) {
      json.member("bubble_fraction", row.plan->pipeline->timeline.bubble_fraction);
      json.member("peak_in_flight", in_flight(*row.plan));
    }
    if (row.plan && row.plan->estimate) {
      const auto& estimate = *row.plan->estimate;
      const auto& memory = estimate.memory;
      json.member("step_seconds", estimate.time.step);
      json.member("tokens_per_second", estimate.time.tokens_per_second);
      json.member("estimated_bubble", estimate.time.bubble);
      json.member("peak_bytes", memory.peak());
    }
    json.end_object();
  }
  json.end_array();
  json.end_object();
  return json.take() + "\n";
}

/// The accumulation steps of an optimizer step, each a pass of its own, one after the other.
schedule::Timeline whole_step(const schedule::Timeline& pass, int passes) {
  auto out = pass;
  for (int i = 1; i < passes; ++i)
    for (auto event : pass.events) {
      event.start += i * pass.makespan;
      event.end += i * pass.makespan;
      out.events.push_back(event);
    }
  out.makespan *= passes;
  out.shape.microbatches *= passes;
  for (auto& rank : out.ranks) {
    rank.busy *= passes;
    rank.idle *= passes;
    rank.communicating *= passes;
  }
  return out;
}

std::string draw(const std::vector<Row>& rows) {
  std::vector<schedule::SvgChart> charts;
  std::deque<schedule::Timeline> steps;  // needs stable addresses
  for (const auto& row : rows) {
    if (!row.plan) continue;
    const auto title =
        fmt::format("{}, {} stage{} per rank", row.name, row.stages_per_rank, row.stages_per_rank == 1 ? "" : "s");
    const bool timed = row.plan->estimate.has_value();
    const auto& pass = timed ? row.plan->estimate->time.timeline : row.plan->pipeline->timeline;
    charts.push_back(
        {&steps.emplace_back(whole_step(pass, row.plan->batch.runs)), {.title = title, .in_seconds = timed}});
  }
  return schedule::timeline_svg(charts);
}

}  // namespace

int compare_schedules(const Options& options, const config::LoadedRecipe& loaded, estimate::PlanRequest request) {
  const auto base = estimate::make_plan(loaded, request);
  if (!base.plan) return refuse(base.problems, loaded, options.json);
  if (!base.plan->pipelined || !base.plan->pipeline)
    throw wrong_words("--compare-schedules compares pipeline schedules, and this recipe has no pipeline",
                      "add one: '--distributed.pp_size 4'");
  request.world_size = base.plan->mesh.world_size();
  const int microbatch = base.plan->batch.microbatch;
  std::vector<Row> rows;
  for (const auto& generator : schedule::generators()) {
    if (generator.searched) rows.push_back(plan_with(loaded, request, {std::string(generator.name)}, microbatch));
    if (generator.generate == nullptr) continue;
    for (const int count : stages_of(generator))
      rows.push_back(plan_with(loaded, request, {std::string(generator.name), count}, microbatch));
  }
  std::stable_sort(rows.begin(), rows.end(), [](const Row& a, const Row& b) {
    return std::pair(!a.plan, a.step()) < std::pair(!b.plan, b.step());
  });
  if (!options.timeline.empty()) write_file(options.timeline, draw(rows));
  options.json ? out(json_of(rows)) : say(text_of(rows));
  return code(ExitCode::kOk);
}

}  // namespace automodel::app
