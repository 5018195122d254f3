// `automodel schedule`: a named, searched or read schedule for given costs, without a recipe.
#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <sstream>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/json_writer.h"
#include "base/spelling.h"
#include "commands.h"
#include "report.h"
#include "schedule/pipeline_costs.h"
#include "schedule/pipeline_schedule.h"
#include "schedule/search_order.h"
#include "schedule/timeline_svg.h"
#include "schedule/timeline_text.h"
#include "schedule/torch_waits.h"

namespace automodel::app {
namespace {

using schedule::PipelineCosts;
using schedule::PipelineSchedule;
using schedule::PlacementStyle;

constexpr std::size_t kLargestCostsFile = std::size_t{1} << 24;  // bytes

[[noreturn]] void stop_with(Diagnostics problems, const std::string& file = "command line") {
  for (auto& problem : problems)
    if (problem.where.file.empty()) problem.where.file = file;
  throw Error(ExitCode::kBadInput, std::move(problems));
}

/// The schedule and the names that the output repeats.
struct Chosen {
  std::string name = {};
  PipelineSchedule made = {};
  PipelineCosts costs = {};
  std::string style() const { return std::string(schedule::style_of(made.placement)); }
  int stages_per_rank() const { return made.shape.stages / made.shape.ranks; }
};

struct CostKey {
  std::string_view name;
  std::vector<double> PipelineCosts::*values;
};
constexpr std::array kCostKeys = {
    CostKey{"forward", &PipelineCosts::forward},
    CostKey{"backward_input", &PipelineCosts::backward_input},
    CostKey{"backward_weight", &PipelineCosts::backward_weight},
    CostKey{"activation", &PipelineCosts::activation},
    CostKey{"kept", &PipelineCosts::kept},
};

nlohmann::json read_json(const std::string& path) {
  std::error_code error;
  const auto size = std::filesystem::file_size(path, error);
  std::ifstream stream(path, std::ios::binary);
  if (error || !stream || size > kLargestCostsFile)
    stop_with({Diagnostic{"missing-file"}
                   .says("the costs '{}' are not a file that can be read", path)
                   .hint("give a JSON file, for example {\"forward\": [1, 1.6], \"comm\": 0.1}")});
  try {
    return nlohmann::json::parse(stream);
  } catch (const nlohmann::json::exception& wrong) {
    const std::string why = wrong.what();
    stop_with({Diagnostic{"schedule-costs"}
                   .says("no valid JSON: {}", why.substr(why.find("] ") + 2))
                   .hint("numbers are finite: JSON has no NaN or infinity")},
              path);
  }
}

/// One number for all stages, or a list of numbers.
std::vector<double> numbers_of(const nlohmann::json& value, std::string_view key, int stages, const std::string& path) {
  std::vector<double> out;
  const auto add = [&](const nlohmann::json& number) {
    if (!number.is_number())
      stop_with({Diagnostic{"schedule-costs"}
                     .says("{} has {} where a number belongs", key, number.type_name())
                     .hint("a number for all stages, or a list of {}", stages)},
                path);
    out.push_back(number.get<double>());
  };
  if (value.is_array())
    for (const auto& number : value) add(number);
  else
    add(value);
  if (!value.is_array()) out.resize(static_cast<std::size_t>(stages), out.front());
  return out;
}

/// The costs in what `automodel plan --json` prints: its estimated times by stage. Other documents stay as they are.
nlohmann::json costs_of_plan(nlohmann::json document) {
  const auto path = nlohmann::json::json_pointer("/time/stages");
  if (!document.is_object() || !document.contains(path) || !document[path].is_array()) return document;
  auto out = nlohmann::json::object();
  for (const auto& stage : document[path])
    for (const char* key : {"forward", "backward_input", "backward_weight"})
      if (stage.contains(key)) out[key].push_back(stage[key]);
  return out;
}

PipelineCosts read_costs(const std::string& path, int stages) {
  PipelineCosts costs = schedule::even_costs(stages);
  if (path.empty()) return costs;
  const auto document = costs_of_plan(read_json(path));
  if (!document.is_object())
    stop_with(
        {Diagnostic{"schedule-costs"}.says("the costs are no JSON object").hint("{\"forward\": ..., \"comm\": ...}")},
        path);
  std::vector<std::string_view> known = {"comm"};
  for (const CostKey& key : kCostKeys) known.push_back(key.name);
  for (const auto& [key, value] : document.items()) {
    const auto row =
        std::find_if(kCostKeys.begin(), kCostKeys.end(), [&](const auto& each) { return each.name == key; });
    if (key == "comm")
      costs.message = numbers_of(value, key, 1, path).at(0);
    else if (row != kCostKeys.end())
      costs.*row->values = numbers_of(value, key, stages, path);
    else
      stop_with({Diagnostic{"schedule-costs"}.says("unknown key '{}'", key).hint(suggestion(key, known))}, path);
  }
  if (!document.contains("kept")) costs.kept = costs.activation;
  return costs;
}

bool names_file(const std::string& word) {
  std::error_code error;
  return word.ends_with(".csv") || std::filesystem::is_regular_file(word, error);
}

/// Names and searches need both sizes; a file has its own.
void require_sizes(const Options& options) {
  if (!options.pipeline_ranks) throw wrong_words("--pp-size is required", "for example '--pp-size 4'");
  if (!options.microbatches) throw wrong_words("--microbatches is required", "for example '--microbatches 8'");
}

PlacementStyle style_of(const Options& options) {
  return options.style == "v" ? PlacementStyle::kV : PlacementStyle::kLoop;
}

Chosen searched_schedule(const Options& options) {
  require_sizes(options);
  const schedule::Request request{.ranks = *options.pipeline_ranks,
                                  .stages_per_rank = options.stages_per_rank.value_or(1),
                                  .microbatches = *options.microbatches};
  if (options.style == "v" && request.stages_per_rank == 1)
    throw wrong_words("--style v turns back on the last rank, with one stage per rank there is nothing to turn back",
                      "for example '--stages-per-rank 2'");
  const auto* any = schedule::find_generator("LoopedBFS");  // takes every size that a table can have
  if (auto problems = schedule::check_request(*any, request); !problems.empty()) stop_with(std::move(problems));
  const auto placement = schedule::make_placement(style_of(options), request.ranks, request.stages());
  PipelineCosts costs = read_costs(options.costs, request.stages());
  costs.memory = options.memory_limit;
  if (auto problems = schedule::check_costs(costs, placement); !problems.empty()) stop_with(std::move(problems));
  schedule::CsvTable table{schedule::search_order(schedule::scaled(costs, placement, request.microbatches).work),
                           schedule::Origin("search")};
  auto made = schedule::make_schedule(std::move(table), schedule::CsvFormat::kComputeOnly, request.shape());
  AUTOMODEL_CHECK(made.ok(), to_text(made.problems));
  return {"search", std::move(made), std::move(costs)};
}

Chosen named_schedule(const Options& options) {
  const auto* generator = schedule::find_generator(options.schedule);
  if (generator == nullptr) {
    auto problem = schedule::unknown_schedule(options.schedule);
    problem.help += "; or a CSV file";
    stop_with({std::move(problem)});
  }
  require_sizes(options);
  if (generator->searched) return searched_schedule(options);
  const int usual = generator->single_stage ? 1 : std::max(2, generator->min_stages_per_rank);
  const schedule::Request request{.ranks = *options.pipeline_ranks,
                                  .stages_per_rank = options.stages_per_rank.value_or(usual),
                                  .microbatches = *options.microbatches};
  if (auto problems = schedule::check_request(*generator, request); !problems.empty()) stop_with(std::move(problems));
  if (!options.style.empty() && style_of(options) != generator->placement)
    throw wrong_words(fmt::format("{} places its stages as {}, not {}", generator->name,
                                  schedule::name_of(generator->placement), options.style),
                      "leave --style out");
  return {std::string(generator->name), schedule::make_schedule(*generator, request),
          read_costs(options.costs, request.stages())};
}

Chosen read_schedule(const Options& options) {
  const std::string& path = options.schedule;
  auto format = schedule::CsvFormat::kComputeOnly;
  auto table = schedule::load_csv(path, format);
  if (std::any_of(table.problems.begin(), table.problems.end(),
                  [](const Diagnostic& problem) { return problem.id == "schedule-csv-communication"; })) {
    format = schedule::CsvFormat::kComputeComms;
    table = schedule::load_csv(path, format);
  }
  if (!table.problems.empty()) stop_with(std::move(table.problems));
  schedule::Shape shape = schedule::shape_of(table.schedule);
  const auto agree = [&](std::optional<int> given, int has, const char* what) {
    if (given && *given != has)
      throw wrong_words(fmt::format("'{}' has {} {}, not {}", path, has, what, *given), "leave the option out");
  };
  agree(options.pipeline_ranks, shape.ranks, "ranks");
  agree(options.microbatches, shape.microbatches, "microbatches");
  if (options.stages_per_rank) agree(*options.stages_per_rank * shape.ranks, shape.stages, "stages");
  auto made = schedule::make_schedule(std::move(table), format, shape);
  if (!made.ok()) stop_with(std::move(made.problems));
  Chosen out{path, std::move(made), read_costs(options.costs, shape.stages)};
  if (!options.style.empty() && out.style() != options.style)
    throw wrong_words(fmt::format("'{}' places its stages as {}, not {}", path, out.style(), options.style),
                      "leave --style out");
  return out;
}

/// A table with fixed memory does not fit a limit below it.
void check_limit(const Chosen& chosen, const std::vector<double>& peaks) {
  if (!chosen.costs.memory) return;
  const auto most = std::max_element(peaks.begin(), peaks.end());
  if (*most <= *chosen.costs.memory * (1 + 1e-9)) return;
  throw Error(Diagnostic{"schedule-memory-limit"}
                  .says("{} holds {} on rank {}, more than the limit of {}", chosen.name, *most, most - peaks.begin(),
                        *chosen.costs.memory)
                  .hint("a limit of at least {}, or 'search', which keeps any limit that one microbatch fits", *most)
                  .at({"command line", 0, 0})
                  .exits(ExitCode::kRefused));
}

std::string to_text(const Chosen& chosen, const schedule::Timeline& timeline, double bound,
                    const std::vector<double>& peaks) {
  const auto& shape = chosen.made.shape;
  std::string out = fmt::format("schedule  {}: {} stages on {} ranks ({}), {} microbatches\n", chosen.name,
                                shape.stages, shape.ranks, chosen.style(), shape.microbatches);
  out += schedule::timeline_text(timeline, 110);
  out += timeline.makespan <= bound * (1 + 1e-9)
             ? fmt::format("makespan  {:.6g}, the shortest possible\n", timeline.makespan)
             : fmt::format("makespan  {:.6g}, at most {:.1f} % above the shortest possible (at least {:.6g})\n",
                           timeline.makespan, bound > 0 ? 100 * (timeline.makespan / bound - 1) : 0.0, bound);
  out += fmt::format("bubble    {:.1f} %\npeak     ", 100 * timeline.bubble_fraction);
  for (std::size_t rank = 0; rank < std::min<std::size_t>(peaks.size(), 16); ++rank)
    out += fmt::format(" {:.6g}", peaks[rank]);
  out += peaks.size() > 16 ? " ... activations per rank\n" : " activations per rank\n";
  if (const auto heaviest = schedule::heaviest_rank(timeline); !heaviest.empty()) out += "bounded   " + heaviest + "\n";
  int buffers = 0;
  for (const auto& live : chosen.made.proof.ranks) buffers = std::max(buffers, live.receive_buffers);
  return out +
         fmt::format("proof     every message has its receive, no rank waits forever, at most {} receive buffers\n",
                     buffers);
}

std::string to_json(const Chosen& chosen, const schedule::Timeline& timeline, double bound,
                    const std::vector<double>& peaks) {
  std::vector<std::string> rows;
  for (const auto& row : schedule::compute_only(chosen.made.order)) rows.push_back(schedule::to_text(row));
  JsonWriter json;
  json.begin_object();
  json.member("schedule", chosen.name);
  json.member("pp_size", chosen.made.shape.ranks);
  json.member("stages_per_rank", chosen.stages_per_rank());
  json.member("style", chosen.style());
  json.member("microbatches", chosen.made.shape.microbatches);
  json.member("ranks", rows);
  json.member("makespan", timeline.makespan);
  json.member("lower_bound", bound);
  json.member("bubble_fraction", timeline.bubble_fraction);
  json.member("peak_activations", peaks);
  json.member("deadlock_free", chosen.made.proof.ok());
  if (const auto heaviest = schedule::heaviest_rank(timeline); !heaviest.empty()) json.member("bounded_by", heaviest);
  json.end_object();
  return json.take() + "\n";
}

std::string file_text(const PipelineSchedule& made, std::string_view format) {
  if (format == "lowered-2.15") return schedule::to_csv_with_waits(made.order, made.placement, made.shape);
  return schedule::to_csv(format == "lowered" ? made.training : made.order);
}

}  // namespace

int run_schedule(const Options& options) {
  Chosen chosen = names_file(options.schedule) ? read_schedule(options) : named_schedule(options);
  chosen.costs.memory = options.memory_limit;
  const auto& made = chosen.made;
  if (auto problems = schedule::check_costs(chosen.costs, made.placement); !problems.empty())
    stop_with(std::move(problems));
  const auto peaks = schedule::peak_activations(made.order, chosen.costs);
  check_limit(chosen, peaks);
  const auto timeline = schedule::earliest_times(made.order, made.placement, made.shape, chosen.costs);
  const double bound =
      std::min(timeline.makespan, schedule::lower_bound(chosen.costs, made.placement, made.shape.microbatches));
  if (!options.timeline.empty())
    write_file(options.timeline, schedule::timeline_svg(timeline, {.title = chosen.name, .in_seconds = false}));
  if (!options.output.empty()) write_file(options.output, file_text(made, options.format));
  options.json ? out(to_json(chosen, timeline, bound, peaks)) : say(to_text(chosen, timeline, bound, peaks));
  return code(ExitCode::kOk);
}

}  // namespace automodel::app
