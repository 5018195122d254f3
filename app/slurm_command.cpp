#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <utility>

#include <fmt/format.h>

#include "commands.h"
#include "job_plan.h"
#include "launch/slurm_script.h"
#include "launch/train_command.h"
#include "preflight/preflight.h"
#include "report.h"

namespace automodel::app {
namespace {

namespace fs = std::filesystem;

/// The path by which a job can find this program: that of the launcher script which started it, if there is one,
/// because that finds LibTorch and Open MPI.
std::string this_program() {
  if (const char* launcher = std::getenv("AUTOMODEL_PROGRAM"); launcher != nullptr && *launcher != '\0')
    return launcher;
  std::error_code error;
  const auto path = fs::read_symlink("/proc/self/exe", error);
  return error ? "automodel" : path.string();
}

/// A job that is warned as soon as it starts would save, requeue itself and start over forever.
void check_time(const Options& options) {
  if (options.time.empty()) return;
  const auto seconds = launch::slurm_seconds(options.time);
  if (!seconds)
    throw wrong_words(fmt::format("'{}' is not a time that Slurm accepts", options.time),
                      "minutes (240), H:M:S (4:00:00), D-H (1-12), D-H:M:S, or UNLIMITED");
  const auto earliest = options.warning + launch::kSlurmResolution;
  if (*seconds <= earliest)
    throw wrong_words(fmt::format("--time {} leaves no time to train: the job is warned up to {} s before its end",
                                  options.time, earliest),
                      "use a longer --time or a shorter --warning (seconds; Slurm may warn 60 s early)");
}

std::string file_text(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::error_code error;
  if (!file || fs::is_directory(path, error))
    throw Error(Diagnostic{"missing-file"}
                    .says("--preamble '{}' cannot be read", path)
                    .hint("name a readable file of shell commands (module load openmpi)")
                    .at({"command line", 0, 0}));
  return {std::istreambuf_iterator<char>(file), {}};
}

std::string job_name_of(const std::string& recipe) {
  std::string name = fs::path(recipe).stem().string();
  std::ranges::replace_if(
      name, [](unsigned char c) { return std::isgraph(c) == 0; }, '_');
  return name;
}

/// Arguments for #SBATCH lines, which are not parsed by a shell: spaces cannot be quoted, and a line break would start
/// a command.
void check_words(const Options& options) {
  const auto check = [](const char* option, const std::string& value) {
    if (std::ranges::all_of(value, [](unsigned char c) { return std::isgraph(c) != 0; })) return;
    throw wrong_words(fmt::format("{} '{}' has a space or a control character", option, value),
                      "an #SBATCH option takes a single word");
  };
  check("--partition", options.partition);
  check("--account", options.account);
  check("--qos", options.qos);
  check("--job-name", options.job_name);
  check("--logs", options.logs);
  if (!options.mounts.empty() && options.container.empty())
    throw wrong_words("--mount needs a container", "add '--container IMAGE', or leave --mount out");
  if (!options.container.empty() && options.launcher == "mpirun")
    throw wrong_words("--container needs srun (pyxis)", "leave '--launcher mpirun' out");
  if (!options.container.empty() && options.max_restarts.value_or(0) > 0)
    throw wrong_words("--max-restarts starts ranks from the job's script, which runs outside the container",
                      "leave --max-restarts out (a job that ends is requeued), or leave --container out");
  if (options.min_ranks && options.launcher == "mpirun")
    throw wrong_words("--min-ranks needs srun to find the remaining nodes", "leave '--launcher mpirun' out");
}

}  // namespace

/// The script is printed only if a plan can be made: a job should not wait in a queue only to fail.
int run_slurm(const Options& options) {
  check_time(options);
  check_words(options);
  const auto planned = plan_job(options);
  if (!planned.plan) return planned.exit;
  const auto& loaded = planned.loaded;
  err(to_text(planned.plan->warnings, "warning"));
  // Other nodes may see other folders, but the most common mistake is a path that is wrong everywhere.
  if (options.container.empty()) err(to_text(preflight::check_files(loaded, *planned.plan), "warning"));
  std::error_code error;
  const auto program = options.program.empty() ? this_program() : options.program;
  const auto& faults = loaded.recipe.fault_tolerance();
  const int restarts =
      options.container.empty() ? options.max_restarts.value_or(faults.max_restarts()) : 0;  // no supervisor inside
  const bool srun = options.launcher == "srun";
  const auto least = options.min_ranks ? options.min_ranks : srun ? faults.min_ranks() : std::nullopt;
  if (restarts > 0 && !options.logs.empty())
    throw wrong_words("with restarts all output is in the job's own log, which says why ranks ended",
                      "leave --logs out");
  if (options.min_ranks && restarts == 0) throw wrong_words("--min-ranks needs restarts", "add '--max-restarts N'");
  if (least && restarts > 0 && *least > planned.ranks())
    throw wrong_words(fmt::format("--min-ranks {} is more than the job's {} ranks", *least, planned.ranks()),
                      "at most nodes x ranks per node");
  auto mounts = options.mounts;
  if (!options.container.empty())
    for (auto& folder : named_folders(loaded, *planned.plan, program)) mounts.push_back(std::move(folder));
  launch::SlurmJob job{.name = options.job_name.empty() ? job_name_of(options.recipe) : options.job_name,
                       .nodes = *options.nodes,
                       .ranks_per_node = planned.per_node,
                       .gpus_per_node = planned.plan->cuda ? planned.per_node : 0,
                       .cpus_per_rank = options.cpus_per_rank.value_or(0),
                       .time = options.time,
                       .partition = options.partition,
                       .account = options.account,
                       .qos = options.qos,
                       .container = options.container,
                       .mounts = std::move(mounts),
                       .preamble = options.preamble.empty() ? "" : file_text(options.preamble),
                       .logs = options.logs,
                       .warning_seconds = options.warning,
                       .launcher = srun ? launch::SlurmLauncher::kSrun : launch::SlurmLauncher::kMpirun,
                       .max_restarts = restarts,
                       .min_ranks = restarts > 0 ? least : std::nullopt,
                       .program = program,
                       .recipe = fs::absolute(options.recipe, error).lexically_normal().string(),
                       .overrides = options.overrides};
  out(launch::slurm_script(job));
  return code(ExitCode::kOk);
}

}  // namespace automodel::app
