#include <algorithm>
#include <cctype>
#include <filesystem>
#include <utility>

#include <fmt/format.h>

#include "commands.h"
#include "launch/slurm_script.h"
#include "launch/train_command.h"
#include "plan/training_plan.h"
#include "report.h"

namespace automodel::app {
namespace {

namespace fs = std::filesystem;

/// This program as a job finds it: by its path.
std::string this_program() {
  std::error_code error;
  const auto path = fs::read_symlink("/proc/self/exe", error);
  return error ? "automodel" : path.string();
}

/// A job that is warned as soon as it starts would save, requeue itself and start over for ever.
void check_time(const Options& options) {
  if (options.time.empty()) return;
  const auto seconds = launch::slurm_seconds(options.time);
  if (!seconds)
    throw wrong_words(fmt::format("'{}' is no time for Slurm", options.time),
                      "minutes (240), H:M:S (4:00:00), D-H (1-12), D-H:M:S, or UNLIMITED");
  const auto earliest = options.warning + launch::kSlurmResolution;
  if (*seconds <= earliest)
    throw wrong_words(fmt::format("--time {} leaves nothing to train: the job is warned up to {} s before its end",
                                  options.time, earliest),
                      "a longer --time, or a shorter --warning (seconds; Slurm may warn 60 s too early)");
}

std::string job_name_of(const std::string& recipe) {
  std::string name = fs::path(recipe).stem().string();
  std::ranges::replace_if(
      name, [](unsigned char c) { return std::isgraph(c) == 0; }, '_');
  return name;
}

/// Words of #SBATCH lines, which no shell reads: nothing quotes a space there, and a line's end begins a command.
void check_words(const Options& options) {
  const auto check = [](const char* option, const std::string& value) {
    if (std::ranges::all_of(value, [](unsigned char c) { return std::isgraph(c) != 0; })) return;
    throw wrong_words(fmt::format("{} '{}' has a space or a control character", option, value),
                      "an #SBATCH line takes one word");
  };
  check("--partition", options.partition);
  check("--account", options.account);
  check("--qos", options.qos);
  check("--job-name", options.job_name);
  check("--logs", options.logs);
}

}  // namespace

/// The script is printed only for a plan that can be made: a job should not wait in a queue to learn that it cannot
/// run.
int run_slurm(const Options& options) {
  check_time(options);
  check_words(options);
  const auto loaded = load(options);
  if (!loaded.problems.empty()) return refuse(loaded.problems, loaded, false);
  const plan::PlanRequest look{.ranks_per_node = options.gpus_per_node};
  const auto first = plan::make_plan(loaded, look);
  const bool cuda = first.plan && first.plan->cuda;
  const int per_node =
      options.gpus_per_node.value_or(first.plan && first.plan->estimate ? first.plan->estimate->hardware.per_node
                                     : cuda                             ? 8
                                                                        : 1);
  plan::PlanRequest request = look;
  request.world_size = *options.nodes * per_node;
  const auto result = plan::make_plan(loaded, request);
  if (!result.plan) return refuse(result.problems, loaded, false);
  err(to_text(result.plan->warnings, "warning"));
  std::error_code error;
  launch::SlurmJob job{
      .name = options.job_name.empty() ? job_name_of(options.recipe) : options.job_name,
      .nodes = *options.nodes,
      .ranks_per_node = per_node,
      .gpus_per_node = cuda ? per_node : 0,
      .cpus_per_rank = options.cpus_per_rank.value_or(0),
      .time = options.time,
      .partition = options.partition,
      .account = options.account,
      .qos = options.qos,
      .container = options.container,
      .logs = options.logs,
      .warning_seconds = options.warning,
      .launcher = options.launcher == "mpirun" ? launch::SlurmLauncher::kMpirun : launch::SlurmLauncher::kSrun,
      .program = this_program(),
      .recipe = fs::absolute(options.recipe, error).lexically_normal().string(),
      .overrides = options.overrides};
  out(launch::slurm_script(job));
  return code(ExitCode::kOk);
}

}  // namespace automodel::app
