// A batch script that trains a recipe under Slurm: it starts the ranks, saves before the time limit, requeues and
// resumes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace automodel::launch {

/// What starts the ranks of a job.
enum class SlurmLauncher { kSrun, kMpirun };

struct SlurmJob {
  std::string name = "automodel";
  int nodes = 1;
  int ranks_per_node = 1;
  int gpus_per_node = 0;  ///< 0: request none
  int cpus_per_rank = 0;  ///< 0: Slurm's default
  std::string time = {};  ///< in sbatch's format; empty: the partition's default
  std::string partition = {}, account = {}, qos = {};
  std::string container = {};  ///< image for pyxis' --container-image; empty: none
  std::vector<std::string> mounts =
      {};                     ///< folders that the container sees: "/a" or "/a:/inside"; added to the job's own
  std::string preamble = {};  ///< shell commands before anything is started
  std::string logs = {};      ///< folder for a file per rank; empty: all output in the job's own file
  int warning_seconds = 300;  ///< how long before the time limit the ranks are told to save and stop
  SlurmLauncher launcher = SlurmLauncher::kSrun;
  int max_restarts = 0;               ///< within the allocation, without requeueing
  std::optional<int> min_ranks = {};  ///< a restart continues on the remaining nodes; srun only
  std::string program = "automodel";
  std::string recipe = {};
  std::vector<std::string> overrides = {};
};

/// Returns the script. SIGUSR1 reaches every rank `warning_seconds` before the time limit and ends the run with exit
/// code 10 after a checkpoint; the script then requeues the job. SIGTERM from a preemption ends the run the same way,
/// but Slurm requeues the job itself. All output goes to the job's own file; with `logs`, each rank's to its own (srun:
/// named after job and rank; mpirun: in a folder of the job's), except with restarts, since the supervisor reads there
/// why ranks ended.
std::string slurm_script(const SlurmJob& job);

/// Slurm may send the warning up to this much earlier than requested (sbatch --signal), in seconds.
inline constexpr std::int64_t kSlurmResolution = 60;

/// Seconds of a time limit in sbatch's formats: "MINUTES", "M:S", "H:M:S", "D-H", "D-H:M", "D-H:M:S"; the maximum for
/// "UNLIMITED" and "INFINITE". Empty if sbatch would reject it.
std::optional<std::int64_t> slurm_seconds(std::string_view time);

}  // namespace automodel::launch
