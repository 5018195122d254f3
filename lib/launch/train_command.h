// How a training run is started: in this process, or by mpirun.
#pragma once

#include <string>
#include <vector>

namespace automodel::launch {

/// Whether this process is a rank that a launcher started (mpirun, srun with PMIx or PMI). Not SLURM_PROCID: a plain
/// batch script has it too.
bool in_parallel_job();

/// Whether this machine has an NVIDIA driver and this build the code for it.
bool cuda_present();

/// Path of automodel-worker: $AUTOMODEL_WORKER, else beside this program.
std::string worker_path();

/// What the worker is to do.
enum class Work { kTrain, kVerify, kGenerate, kCalibrate, kCalibrateUsual, kCalibrateLinks };

/// Becomes the worker. Returns the exit code only where that fails, after saying why.
int exec_worker(Work work, const std::string& recipe, const std::vector<std::string>& overrides);

/// Ranks that are to be started.
struct RankJob {
  Work work = Work::kTrain;
  int ranks = 1;
  std::vector<std::string> starter = {};  ///< a command that starts them (mpirun or srun with options); empty: our own
  std::string recipe = {};
  std::vector<std::string> overrides = {};
};

/// How they ended.
struct RankRun {
  int code = 0;               ///< as a shell would see it
  bool told_to_stop = false;  ///< a signal came for them
  std::string cause = {};     ///< the last line on standard error
};

/// Runs `mpirun -np RANKS worker ...`, or the worker itself for one rank, and waits; as exec_worker where that fails.
/// SIGTERM, on which mpirun would kill the ranks within a second, reaches them as SIGUSR1: they end their step first.
/// What is started does not outlive this process. Standard error is passed on.
RankRun watch_ranks(const RankJob& job);

/// The same where only the exit code matters; standard error is that of this process.
int run_ranks(Work work, int ranks, const std::string& recipe, const std::vector<std::string>& overrides);

/// The words of that command line; `recipe` may be empty where the work needs none.
std::vector<std::string> rank_words(const RankJob& job, const std::string& worker);

}  // namespace automodel::launch
