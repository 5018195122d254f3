#include "commands.h"

#include <array>
#include <cstdio>
#include <fstream>

#include <fmt/format.h>

#include "base/error.h"
#include "config/recipe.h"
#include "config/reference.h"
#include "launch/completion.h"
#include "launch/train_command.h"
#include "plan/plan_json.h"
#include "plan/plan_text.h"
#include "plan/training_plan.h"
#include "schedule/chrome_trace.h"
#include "schedule/timeline_svg.h"

namespace automodel::app {
namespace {

int code(ExitCode exit) {
  return static_cast<int>(exit);
}
void out(const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
}
void err(const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), stderr);
}

/// Problems as text with the lines they are about, or as JSON.
int refuse(const Diagnostics& problems, const config::LoadedRecipe& recipe, bool json,
           ExitCode exit = ExitCode::kBadInput) {
  if (json) {
    out(plan::errors_to_json(problems) + "\n");
    return code(exit);
  }
  for (const auto& problem : problems) {
    const std::string text = to_text(problem);
    const auto line_end = text.find('\n');
    const auto excerpt =
        problem.where.file == recipe.path ? source_excerpt(recipe.text, problem.where.line, problem.where.column) : "";
    err(text.substr(0, line_end) + "\n" + excerpt +
        (line_end == std::string::npos ? "" : text.substr(line_end + 1) + "\n"));
  }
  err(fmt::format("{} problem{} in {}\n", problems.size(), problems.size() == 1 ? "" : "s", recipe.path));
  return code(exit);
}

/// The recipe with its overrides; problems of both are in it.
config::LoadedRecipe load(const Options& options) {
  Diagnostics problems;
  const auto overrides = config::parse_overrides(options.overrides, problems);
  auto loaded = config::load_recipe(options.recipe, overrides, config::process_environment());
  loaded.problems.insert(loaded.problems.begin(), problems.begin(), problems.end());
  return loaded;
}

bool write_file(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary);
  file << text;
  file.close();
  if (file) return true;
  err(to_text(Diagnostic{"cannot-write",
                         fmt::format("'{}' cannot be written", path),
                         "choose a folder that exists and is yours",
                         {"command line", 0, 0},
                         ""}) +
      "\n");
  return false;
}

int run_plan(const Options& options) {
  const auto loaded = load(options);
  if (!loaded.problems.empty()) return refuse(loaded.problems, loaded, options.json);
  const auto result = plan::make_plan(
      loaded, {.world_size = options.world_size, .training = false, .cuda_available = launch::cuda_present()});
  if (!result.plan) return refuse(result.problems, loaded, options.json);
  const auto& plan = *result.plan;
  const auto format = options.actions == "compute"   ? plan::ActionFormat::kCompute
                      : options.actions == "lowered" ? plan::ActionFormat::kLowered
                                                     : plan::ActionFormat::kNone;
  if (plan.pipeline && !options.timeline.empty() &&
      !write_file(options.timeline,
                  schedule::timeline_svg(plan.pipeline->timeline, {.title = plan.pipeline->name, .in_seconds = false})))
    return code(ExitCode::kEnvironment);
  if (plan.pipeline && !options.trace.empty() &&
      !write_file(options.trace, schedule::chrome_trace(plan.pipeline->timeline, plan.pipeline->name)))
    return code(ExitCode::kEnvironment);
  if (!options.json) err(to_text(plan.warnings, "warning"));
  out(options.json ? plan::to_json(plan, format) + "\n" : plan::to_text(plan, format));
  return code(ExitCode::kOk);
}

/// Each key of the dump with where it came from.
void list_origins(const config::Value& value, const std::string& path, const config::Origins& origins,
                  const std::function<void(const std::string&, const config::Value&, const std::string&)>& visit) {
  if (const auto* map = value.map(); map != nullptr && !map->empty()) {
    for (const auto& [key, item] : *map) list_origins(item, config::join_path(path, key), origins, visit);
    return;
  }
  const auto* origin = origins.find(path);
  std::string where = "default";
  if (origin != nullptr)
    where = origin->where.line > 0 ? fmt::format("{}:{}", origin->where.file, origin->where.line) : origin->where.file;
  visit(path,
        origin != nullptr && !origin->written.empty() && origin->written.find('$') != std::string::npos
            ? config::Value(origin->written)
            : value,
        where);
}

int run_config(const Options& options) {
  const auto loaded = load(options);
  if (!loaded.problems.empty()) return refuse(loaded.problems, loaded, options.json);
  const auto dump = config::to_dict(loaded.recipe);
  if (options.json) {
    config::Value values, origins = config::Value::Map{};
    list_origins(
        dump, "", loaded.origins,
        [&](const std::string& path, const config::Value&, const std::string& where) { origins.set(path, where); });
    values.set("recipe", loaded.path);
    values.set("values", dump);
    values.set("origins", origins);
    out(config::to_json(values) + "\n");
  } else {
    list_origins(dump, "", loaded.origins,
                 [&](const std::string& path, const config::Value& value, const std::string& where) {
                   out(fmt::format("{}: {}  # {}\n", path, config::to_json(value), where));
                 });
  }
  return code(ExitCode::kOk);
}

int run_schema(const Options& options) {
  out(options.markdown ? config::recipe_reference() : config::recipe_schema() + "\n");
  return code(ExitCode::kOk);
}

int run_completion(const Options& options) {
  out(launch::completion_script(options.shell, options.known, config::recipe_keys()));
  return code(ExitCode::kOk);
}

int run_train(const Options& options) {
  // A rank of a job leaves everything to the worker, where rank 0 reads the recipe for all.
  if (launch::in_parallel_job()) return launch::exec_worker(options.recipe, options.overrides);
  const auto loaded = load(options);
  if (!loaded.problems.empty()) return refuse(loaded.problems, loaded, false);
  const int ranks = options.nproc_per_node.value_or(1);
  const auto result =
      plan::make_plan(loaded, {.world_size = ranks, .training = true, .cuda_available = launch::cuda_present()});
  if (!result.plan) return refuse(result.problems, loaded, false);
  return ranks > 1 ? launch::exec_mpirun(ranks, options.recipe, options.overrides)
                   : launch::exec_worker(options.recipe, options.overrides);
}

constexpr std::array kCommands = {
    Command{"train", "train RECIPE [--nproc-per-node N] [OVERRIDE...]",
            "Train: alone, under mpirun or srun, or with --nproc-per-node", kRecipe | kProcesses, run_train},
    Command{"plan", "plan RECIPE [--world-size N] [--json] [OVERRIDE...]",
            "Print what would run: mesh, stages, schedule, proofs", kRecipe | kJson | kWorldSize | kPictures | kDryRun,
            run_plan},
    Command{"config", "config RECIPE [--json] [OVERRIDE...]",
            "Print every key of the recipe with its value and where it came from", kRecipe | kJson, run_config},
    Command{"schema", "schema [--markdown]", "Print the JSON Schema of recipes, for editors", kMarkdown, run_schema},
    Command{"completion", "completion SHELL",
            "Print shell completion, for example: source <(automodel completion bash)", kShell, run_completion},
};

}  // namespace

std::span<const Command> commands() {
  return kCommands;
}

}  // namespace automodel::app
