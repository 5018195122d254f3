#include "launch/slurm_script.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <limits>

#include <fmt/format.h>

#include "base/shell_word.h"
#include "launch/forwarding.h"

namespace automodel::launch {
namespace {

std::string directives(const SlurmJob& job) {
  std::string out = "#!/bin/bash\n";
  const auto add = [&](const std::string& option) { out += "#SBATCH --" + option + "\n"; };
  const auto add_text = [&](const char* name, const std::string& value) {
    if (!value.empty()) add(fmt::format("{}={}", name, value));
  };
  add_text("job-name", job.name);
  add(fmt::format("nodes={}", job.nodes));
  add(fmt::format("ntasks-per-node={}", job.ranks_per_node));
  if (job.gpus_per_node > 0) add(fmt::format("gpus-per-node={}", job.gpus_per_node));
  if (job.cpus_per_rank > 0) add(fmt::format("cpus-per-task={}", job.cpus_per_rank));
  add_text("time", job.time);
  add_text("partition", job.partition);
  add_text("account", job.account);
  add_text("qos", job.qos);
  // srun: sent to the ranks directly; mpirun is not a job step, so the script gets the signal and forwards it.
  add(fmt::format("signal={}USR1@{}", job.launcher == SlurmLauncher::kMpirun ? "B:" : "", job.warning_seconds));
  add("requeue");
  if (job.min_ranks) add("no-kill");  // losing a node does not end the job
  add("open-mode=append");
  add("output=%x-%j.log");  // Slurm makes no folders: into one that is missing the job would not start
  return out;
}

/// A command in the script: the launcher, then the program. With restarts the script runs the program once, which
/// starts the ranks itself.
std::string command_of(const SlurmJob& job, const std::string& starter) {
  std::string out = fmt::format("{} train {}", shell_quoted(job.program), shell_quoted(job.recipe));
  if (job.max_restarts > 0) out += fmt::format(" --max-restarts {}", job.max_restarts);
  if (job.max_restarts > 0 && job.min_ranks) out += fmt::format(" --min-ranks {}", *job.min_ranks);
  if (job.max_restarts > 0) out += fmt::format(" \\\n  --start-with \"{}\"", starter);
  for (const auto& word : job.overrides) out += " " + shell_quoted(word);
  return job.max_restarts > 0 ? out : starter + " \\\n  " + out;
}

/// ",/a:/a" for each folder.
std::string mounts_of(const SlurmJob& job) {
  std::string out;
  for (const auto& mount : job.mounts)
    out += "," + (mount.find(':') == std::string::npos ? mount + ":" + mount : mount);
  return out.empty() ? out : shell_quoted(out);
}

std::string srun_words(const SlurmJob& job) {
  std::string out = "srun --kill-on-bad-exit=1 --mpi=$mpi --cpu-bind=cores --distribution=block:block";
  // Output stays with the supervisor, which reads why ranks ended; and a step that lost a node may block others for a
  // while.
  if (job.max_restarts > 0) return out + " --overlap";
  if (!job.container.empty())
    out += fmt::format(" --container-image={} --container-mounts=\"$PWD:$PWD\"{} --container-workdir=\"$PWD\"",
                       shell_quoted(job.container), mounts_of(job));
  if (job.logs.empty()) return out;
  return out + fmt::format(" --open-mode=append --output={}/%x-%j-%t.log", shell_quoted(job.logs));
}

std::string mpirun_words(const SlurmJob& job) {
  auto out = fmt::format("mpirun -np {} --map-by ppr:{}:node --bind-to {}", job.nodes * job.ranks_per_node,
                         job.ranks_per_node, job.gpus_per_node > 0 ? "numa" : "core");
  if (job.max_restarts > 0 || job.logs.empty()) return out;
  return out + fmt::format(" --output-filename {}/\"$SLURM_JOB_NAME-$SLURM_JOB_ID\"", shell_quoted(job.logs));
}

constexpr const char* kChooseMpi =
    "# Ranks find each other through the process manager that Slurm was built with; there is no address to give.\n"
    "mpi=$(srun --mpi=list 2>&1 | tr ' ' '\\n' | grep -m1 -E '^pmix(_v[0-9]+)?$' || true)\n"
    "if [ -z \"$mpi\" ]; then\n"
    "  echo \"this Slurm has no PMIx plugin: make the script with --launcher mpirun\" >&2\n"
    "  exit 4\n"
    "fi\n";

/// SIGTERM means preemption, after which Slurm itself requeues the job, or cancellation, after which nothing must.
constexpr const char* kTraps =
    "requeue=yes\n"
    "trap stop USR1\n"
    "trap 'requeue=no; stop' TERM\n";

constexpr const char* kRequeue =
    "# 10: stopped by a signal after saving. 138: SIGUSR1 came before the ranks were running. The job goes back into\n"
    "# the queue and continues where it was.\n"
    "if [ \"$requeue\" = yes ] && { [ \"$code\" -eq 10 ] || [ \"$code\" -eq 138 ]; }; then\n"
    "  scontrol requeue \"$SLURM_JOB_ID\"\n"
    "  sleep 60  # the requeue ends this script\n"
    "fi\n"
    "exit \"$code\"\n";

/// Numbers separated by colons; empty if there is anything else.
std::vector<std::int64_t> numbers_of(std::string_view text) {
  std::vector<std::int64_t> out;
  const char* at = text.data();
  const char* const end = at + text.size();
  while (true) {
    std::uint32_t number = 0;
    const auto [rest, error] = std::from_chars(at, end, number);
    if (error != std::errc()) return {};
    out.push_back(number);
    if (rest == end) return out;
    if (*rest != ':') return {};
    at = rest + 1;
  }
}

}  // namespace

std::optional<std::int64_t> slurm_seconds(std::string_view time) {
  constexpr std::int64_t kMinute = 60, kHour = 60 * kMinute, kDay = 24 * kHour;
  std::string word(time);
  std::ranges::transform(word, word.begin(), [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  if (word == "UNLIMITED" || word == "INFINITE") return std::numeric_limits<std::int64_t>::max();
  const auto dash = time.find('-');
  const bool has_days = dash != std::string_view::npos;
  const auto days = numbers_of(has_days ? time.substr(0, dash) : "0");
  const auto rest = numbers_of(has_days ? time.substr(dash + 1) : time);
  if (days.size() != 1 || rest.empty() || rest.size() > 3) return std::nullopt;
  // Without days, one number is minutes and two are minutes and seconds.
  std::int64_t unit = has_days || rest.size() == 3 ? kHour : kMinute;
  std::int64_t seconds = days[0] * kDay;
  for (const auto number : rest) {
    seconds += number * unit;
    unit /= 60;
  }
  return seconds;
}

std::string slurm_script(const SlurmJob& job) {
  const bool srun = job.launcher == SlurmLauncher::kSrun;
  std::string out = directives(job);
  if (!job.preamble.empty())
    out += fmt::format("\n# From --preamble.\n{}{}", job.preamble, job.preamble.ends_with('\n') ? "" : "\n");
  out += "\nset -u\n";
  if (!job.logs.empty()) out += fmt::format("mkdir -p {}\n", shell_quoted(job.logs));
  out += "export OMP_NUM_THREADS=${SLURM_CPUS_PER_TASK:-1}\n";
  out += "echo \"$(date) job $SLURM_JOB_ID, restart ${SLURM_RESTART_COUNT:-0}, on $SLURM_JOB_NODELIST\"\n\n";
  if (srun) out += kChooseMpi;
  out += command_of(job, srun ? srun_words(job) : mpirun_words(job)) + " &\n";
  out += wait_and_forward(kTraps, "trap - USR1 TERM\n");
  out += "echo \"$(date) ended with exit code $code\"\n";
  return out + kRequeue;
}

}  // namespace automodel::launch
