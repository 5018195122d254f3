#include "commands.h"

#include <array>

#include <fmt/format.h>

#include "arch/families.h"
#include "checkpoint_command.h"
#include "config/recipe.h"
#include "config/reference.h"
#include "estimate/estimated_plan.h"
#include "launch/completion.h"
#include "launch/train_command.h"
#include "plan/facts.h"
#include "report.h"
#include "schedule/generators.h"
#include "tokenize.h"

namespace automodel::app {
namespace {

/// The one section whose defaults depend on the device (see choose_types in lib/plan/type_choice.cpp).
constexpr std::string_view kPolicy = "distributed.mp_policy";

/// The values that apply to the recipe's device.
config::Value values_of(const config::LoadedRecipe& loaded) {
  auto out = config::shown_values(loaded);
  const auto* distributed = out.find("distributed");
  if (loaded.recipe.device() != config::Device::kCpu || loaded.origins.find(std::string(kPolicy)) != nullptr ||
      distributed == nullptr || distributed->find("mp_policy") == nullptr)
    return out;
  auto section = *distributed;
  section.set("mp_policy", nullptr);
  out.set("distributed", std::move(section));
  return out;
}

/// Visits each key of the dump with its origin.
void list_origins(const config::Value& value, const std::string& path, const config::Origins& origins,
                  const std::function<void(const std::string&, const config::Value&, const std::string&)>& visit) {
  if (const auto* map = value.map(); map != nullptr && !map->empty()) {
    for (const auto& [key, item] : *map) list_origins(item, config::join_path(path, key), origins, visit);
    return;
  }
  const auto* origin = origins.find(path);
  std::string where = "default";
  if (path.starts_with(kPolicy) && origins.find(std::string(kPolicy)) == nullptr)
    where = path == kPolicy ? "default on a cpu: the model's own dtype" : "default on cuda; none on a cpu";
  if (origin != nullptr)
    where = origin->where.line > 0 ? fmt::format("{}:{}", origin->where.file, origin->where.line) : origin->where.file;
  visit(path, value, where);
}

int run_config(const Options& options) {
  const auto loaded = load(options);
  if (!loaded.problems.empty()) return refuse(loaded.problems, loaded, options.json);
  const auto dump = values_of(loaded);
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
  out(options.plan_reference ? plan::parts_reference()
      : options.markdown     ? config::recipe_reference()
      : options.errors       ? errors_page()
                             : config::recipe_schema() + "\n");
  return code(ExitCode::kOk);
}

int run_completion(const Options& options) {
  auto keys = config::recipe_keys();
  keys.emplace_back("model.config.model_type");
  out(launch::completion_script(options.shell, options.known, keys, completed_values()));
  return code(ExitCode::kOk);
}

/// Compares with another trainer's step: on one rank, with its own model.
int run_against(const Options& options) {
  if (!options.recipe.empty() || !options.overrides.empty() || options.nproc_per_node)
    throw wrong_words("--against takes its model from the dump and computes on one rank",
                      "leave the recipe, overrides and --nproc-per-node out: 'automodel verify --against DIR'");
  launch::RankJob job{.work = launch::Work::kAgainst, .json = options.json, .recipe = options.against};
  if (options.tolerance) job.overrides.push_back(fmt::format("{}", *options.tolerance));
  return launch::exec_worker(job);
}

int run_verify(const Options& options) {
  if (!options.against.empty()) return run_against(options);
  if (options.tolerance)
    throw wrong_words("--tolerance is for the gradients of another trainer",
                      "add '--against DIR', or leave --tolerance out: a mesh and one rank agree in float64");
  if (!launch::in_parallel_job()) {
    const auto loaded = load(options);
    if (!loaded.problems.empty()) return refuse(loaded.problems, loaded, options.json);
    const auto result = estimate::make_plan(loaded, {.world_size = options.nproc_per_node});
    if (!result.plan) return refuse(result.problems, loaded, options.json);
  }
  return launch::exec_worker({.work = launch::Work::kVerify,
                              .threads = options.nproc_per_node,
                              .json = options.json,
                              .recipe = options.recipe,
                              .overrides = options.overrides});
}

constexpr std::array kCommands = {
    Command{"train", "train RECIPE [--nproc-per-node N] [--max-restarts N] [--min-ranks N] [--json] [OVERRIDE...]",
            "Train: with one rank, under mpirun or srun, or with --nproc-per-node", kRecipe | kProcesses | kJson,
            run_train},
    Command{"plan", "plan RECIPE [--world-size N] [--calibrate] [--json] [OVERRIDE...]",
            "Print what would run: mesh, stages, schedule, memory, time, and the proof of the schedule",
            kRecipe | kJson | kWorldSize | kPictures | kDryRun | kEstimates, run_plan},
    Command{"init", "init pretrain|sft|lora [--model NAME] [--data FILE] [--nproc-per-node N] [-o FILE.yaml]",
            "Write a commented recipe to begin with", kInit, run_init},
    Command{"schedule", "schedule NAME|FILE.csv|search --pp-size P --microbatches M [--costs FILE.json] [--json]",
            "Print, draw or export a pipeline schedule, or search the shortest one for given costs", kSchedule | kJson,
            run_schedule},
    Command{"verify",
            "verify RECIPE [--nproc-per-node N] [--json] [OVERRIDE...]\n       automodel verify --against DIR "
            "[--tolerance X] [--json]",
            "Compare every gradient of the recipe's mesh, or of another trainer's dump, with one rank",
            kRecipe | kJson | kThreads, run_verify},
    Command{"data", "data RECIPE [--rows N] [--validation] [--html FILE] [--json] [OVERRIDE...]",
            "Print the first rows as they will be trained: label tokens, lengths, packs", kRecipe | kJson | kRows,
            run_data},
    Command{"slurm", "slurm RECIPE --nodes N [--time T] [--partition P] [OVERRIDE...]",
            "Print a batch script that starts the ranks, saves before the time limit and requeues", kRecipe | kSlurm,
            run_slurm},
    Command{"k8s", "k8s RECIPE --nodes N [--kind mpijob|trainjob|jobset] [--volume NAME=PATH...] [OVERRIDE...]",
            "Print Kubernetes objects that start the ranks, save before a pod ends and restart", kRecipe | kK8s,
            run_k8s},
    Command{"doctor", "doctor [--ranks [--nproc-per-node N]] [--json]",
            "Check MPI, LibTorch, CUDA, NCCL, network and limits of this machine; compare ranks", kJson | kDoctor,
            run_doctor},
    Command{"config", "config RECIPE [--json] [OVERRIDE...]",
            "Print every key of the recipe with its value and where it came from", kRecipe | kJson, run_config},
    Command{
        "generate", "generate DIR [--image FILE...] [--prompt TEXT | --chat] [--tp-size N] [--pp-size N]",
        "Continue text, or answer about pictures, with the model of a checkpoint, an export or a Hugging Face folder",
        kGenerate | kJson, run_generate},
    Command{"report", "report RUN... [-o FILE.html]",
            "Write one HTML page about a run, or comparing several: curves, timelines, events, recipe", kReport,
            run_report},
    Command{"studio", "studio [RECIPE|RUN...] [--port N] [--no-open]",
            "Serve a page for this machine only: change a recipe and see its plan follow, search, compare, watch runs",
            kStudio, run_studio},
    Command{"checkpoint", "checkpoint ls|verify|export|import DIR [OUTPUT]",
            "List, verify, export or import checkpoints", kCheckpoint | kJson, run_checkpoint},
    Command{"schema", "schema [--markdown | --plan | --errors]", "Print the JSON Schema of recipes, for editors",
            kMarkdown, run_schema},
    Command{"tokenize", "tokenize DIR [--special] [--decode [--skip-special]]",
            "Convert JSON strings to token ids, one per line of standard input, or back", kTokenizer, run_tokenize},
    Command{"completion", "completion SHELL",
            "Print shell completion, for example: source <(automodel completion bash)", kShell, run_completion},
};

}  // namespace

std::vector<launch::CompletedKey> completed_values() {
  std::vector<launch::CompletedKey> out;
  for (auto& each : config::recipe_values()) out.push_back({std::move(each.key), std::move(each.values)});
  launch::CompletedKey schedules{"distributed.pipeline.pp_schedule", {}}, families{"model.config.model_type", {}};
  for (const auto& each : schedule::generators())
    if (each.generate != nullptr) schedules.values.emplace_back(each.name);
  for (const auto name : arch::family_names()) families.values.emplace_back(name);
  out.push_back(std::move(schedules));
  out.push_back(std::move(families));
  return out;
}

std::span<const Command> commands() {
  return kCommands;
}

}  // namespace automodel::app
