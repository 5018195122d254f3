// How a training run is started: in this process, or through mpirun.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

namespace automodel::launch {

/// Whether this process is a rank started by a launcher (mpirun, or srun with PMIx or PMI). SLURM_PROCID does not
/// count: plain batch scripts have it too.
bool in_parallel_job();

/// Whether this machine has an NVIDIA driver and this program has its CUDA half.
bool cuda_present();

/// Path of automodel-worker: $AUTOMODEL_WORKER, else next to this program.
std::string worker_path();

/// What the worker should do.
enum class Work { kTrain, kVerify, kGenerate, kAgainst, kCalibrate, kCalibrateUsual, kCalibrateLinks, kMeasureRanks };

/// What rank 0 of a training run prints on standard output.
enum class Printed {
  kLines,         ///< human-readable
  kEvents,        ///< JSON lines except the final one, about how the run ended, which this process prints
  kEventsAndEnd,  ///< all JSON lines; rank 0 also prints the final one if it can
};

/// Splits the value of --start-with at white space.
std::vector<std::string> words_of(const std::string& text);

/// The ranks to start, and how.
struct RankJob {
  Work work = Work::kTrain;
  int ranks = 1;
  std::optional<int> threads = {};        ///< kVerify: number of ranks; empty: the product of the recipe's sizes
  bool json = false;                      ///< kVerify, kAgainst: one JSON document instead of text
  std::vector<std::string> starter = {};  ///< launcher command (mpirun or srun with options); empty: our own
  std::string recipe = {};                ///< kAgainst: the folder of the dump
  std::vector<std::string> overrides = {};
  Printed printed = Printed::kLines;
  /// Time for all ranks to join, after which the launcher is killed (error no-start). 0: unlimited. Applies only to
  /// watch_ranks.
  std::chrono::seconds start_deadline{0};
};

/// Becomes the worker. Returns, with an exit code, only if that fails, after printing why. `ranks` and `starter` are
/// ignored: this process is the rank.
int exec_worker(const RankJob& job);

/// How the ranks ended.
struct RankRun {
  int code = 0;               ///< exit code, as a shell would report it
  bool told_to_stop = false;  ///< a signal asked them to stop
  std::string cause = {};     ///< why, according to standard error
  bool cause_last = true;     ///< whether `cause` is the last line there
};

/// Runs `mpirun -np RANKS worker ...`, or just the worker for one rank, and waits; if that fails, as exec_worker.
/// SIGTERM and the first Ctrl-C, on which mpirun would kill the ranks within a second, are forwarded as SIGUSR1, so
/// that they finish their step first. The started processes do not outlive this one. Standard error is forwarded.
RankRun watch_ranks(const RankJob& job);

/// The same if only the exit code matters; of other work than training, standard error is inherited.
int run_ranks(Work work, int ranks, const std::string& recipe, const std::vector<std::string>& overrides);

/// The command line that starts the ranks; `recipe` may be empty if the work needs none.
std::vector<std::string> rank_words(const RankJob& job, const std::string& worker);

}  // namespace automodel::launch
