#include "launch/train_command.h"

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <sstream>
#include <thread>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cuda_plugin.h"
#include "base/error.h"
#include "base/nvidia_driver.h"
#include "base/rank_marks.h"
#include "base/shared_part.h"
#include "launch/stderr_tail.h"
#include "metrics/console.h"

namespace automodel::launch {
namespace {

namespace fs = std::filesystem;

constexpr int kRepeats = 10;      // one per second: mpirun loses a signal that arrives while it starts its ranks
constexpr int kKilledCode = 128;  // plus the signal's number: a shell's exit code for a program killed by a signal
/// Time for ranks that are done to leave MPI and exit. Only MPI_Finalize and mpirun wait for one that is stopped there,
/// and neither has a limit.
constexpr std::chrono::seconds kExitPatience{30};

int cannot_start(const std::string& program, const std::string& hint) {
  const auto problem =
      Diagnostic{"cannot-start"}.says("'{}' cannot be started: {}", program, std::strerror(errno)).hint(hint);
  std::fputs((to_text(problem) + "\n").c_str(), stderr);
  return static_cast<int>(ExitCode::kEnvironment);
}

/// LibTorch's threads (libgomp) spin for milliseconds while waiting for each other. On a busy machine they occupy the
/// core of the very thread they wait for, and a step takes many times as long (docs/performance.md). libgomp reads this
/// variable when it is loaded, so setting it in the worker would be too late.
void let_threads_sleep() {
  constexpr const char* kSpins = "1000";  // iterations of the busy-wait loop before a thread sleeps
  if (std::getenv("OMP_WAIT_POLICY") == nullptr) setenv("GOMP_SPINCOUNT", kSpins, 0);
}

constexpr const char* kPreload = "LD_PRELOAD";

/// The library that makes mpirun listen on the loopback interface; empty if it is not there.
std::string loopback_library() {
  return first_that_exists(part_places(program_folder(), "automodel-loopback.so")).native();
}

/// Ranks of one host exchange messages through shared memory. Open MPI would still have each of them listen for TCP on
/// every interface (whatever btl_tcp_if_include says), or on a network card through libfabric; and mpirun itself for
/// daemons of other hosts. What the user has set stays.
void listen_on_loopback(bool mpirun) {
  setenv("OMPI_MCA_pml", "ob1", 0);
  setenv("OMPI_MCA_btl", "^tcp,ofi", 0);
  auto library = loopback_library();
  if (!mpirun || library.empty()) return;
  if (const char* before = std::getenv(kPreload); before != nullptr && *before != '\0')
    library += ":" + std::string(before);
  setenv(kPreload, library.c_str(), 1);
}

/// Replaces this process; returns an exit code only on failure.
int become(const std::vector<std::string>& words, const std::string& hint) {
  std::vector<char*> argv;
  for (const auto& word : words) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  std::fflush(nullptr);
  let_threads_sleep();
  execvp(argv[0], argv.data());
  return cannot_start(words[0], hint);
}

/// Prints a problem; returns its first line.
std::string say(const Diagnostic& problem) {
  std::fputs((to_text(problem) + "\n").c_str(), stderr);
  return fmt::format("error[{}]: {}", problem.id.name(), problem.message);
}

/// Explains a rank killed by a signal, so that the launcher's own message about it is not the last line.
std::string say_killed(int signal, const std::string& launcher) {
  return say(Diagnostic{"rank-killed"}
                 .says("a rank was killed by signal {} ({})", signal, strsignal(signal))
                 .hint(launcher + " says above which" +
                       (signal == SIGKILL ? "; the kernel does this where memory is used up (dmesg | grep -i "
                                            "oom), others with kill -9"
                                          : "")));
}

/// Ranks never use such exit codes; they come from the launcher.
std::string say_host_lost(int code, const std::string& launcher) {
  return say(Diagnostic{"host-lost"}
                 .says("{} has lost a host, or cannot start ranks on one (exit code {})", launcher, code)
                 .hint(launcher + " says above which; --min-ranks goes on without it"));
}

/// A rank handles SIGUSR1 once it runs; the signal can kill it only before that.
int say_too_early() {
  std::fputs("stopped by a signal before the first step: no rank was running yet\n", stderr);
  return static_cast<int>(ExitCode::kStopped);
}

/// A launcher whose daemon on some host dies early or never responds waits for it forever.
std::string say_no_start(std::chrono::seconds deadline, const std::string& launcher) {
  return say(Diagnostic{"no-start"}
                 .says("{} has not started all ranks within {} s", launcher, deadline.count())
                 .hint("a host does not answer, or a program on it does not start ('automodel doctor' there); "
                       "fault_tolerance.start_minutes gives it longer"));
}

/// Kills a launcher that does not get its ranks started, or whose ranks have done everything and do not exit.
class Deadline {
 public:
  /// 0: none.
  explicit Deadline(std::chrono::seconds deadline) : deadline_(deadline) {}

  /// To be called every second or so. `runs`: the time counts, from the first call or from the last one without it.
  void watch(pid_t launcher, bool runs) {
    const auto now = std::chrono::steady_clock::now();
    if (!runs) begin_ = now;
    const auto late = now - begin_ - deadline_;
    if (!runs || deadline_.count() == 0 || late < std::chrono::seconds(0)) return;
    kill(launcher, late < kGrace ? SIGTERM : SIGKILL);
    passed_ = true;
  }
  bool passed() const { return passed_; }

 private:
  static constexpr std::chrono::seconds kGrace{5};  // for the launcher to end its daemons

  std::chrono::seconds deadline_;
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  bool passed_ = false;
};

/// Whether the ranks of `job` are processes of a launcher, not the child itself.
bool has_launcher(const RankJob& job) {
  return job.ranks > 1 || !job.starter.empty();
}

/// Whether a signal asks the ranks to finish their step and save first.
bool stops_softly(const RankJob& job) {
  return job.work == Work::kTrain && has_launcher(job);
}

/// Moves this process, which becomes a launcher, out of the terminal's foreground group: on Ctrl-C the launcher would
/// kill its ranks within a second, whatever the step takes. Background processes must not read from the terminal, and
/// may be forbidden to write to it (stty tostop).
void leave_foreground() {
  setpgid(0, 0);
  std::signal(SIGTTOU, SIG_IGN);
  if (isatty(STDIN_FILENO) == 0) return;
  const int nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);
  if (nothing >= 0) dup2(nothing, STDIN_FILENO);
}

/// Forwards the signals in `blocked` (which this process blocks) to `child` until it ends. `tail`: its standard error;
/// null if its last line is not needed. `launcher`: its name.
RankRun wait_for(pid_t child, const RankJob& job, const sigset_t& blocked, StderrTail* tail,
                 const std::string& launcher) {
  const bool trains = job.work == Work::kTrain;  // whether there is anything to save
  const bool softly = stops_softly(job);
  bool told_to_stop = false, interrupted = false;
  int repeats = kRepeats;
  Deadline start(tail != nullptr ? job.start_deadline : std::chrono::seconds(0)), leaving(kExitPatience);
  while (true) {
    int status = 0;
    if (waitpid(child, &status, WNOHANG) == child) {
      RankRun out{.code = WIFEXITED(status) ? WEXITSTATUS(status) : kKilledCode + WTERMSIG(status),
                  .told_to_stop = told_to_stop || interrupted};
      if (tail != nullptr) {
        out.cause = tail->finish();  // before this process prints anything
        out.cause_last = tail->cause_was_last();
        if (!tail->explained() && !leaving.passed() && out.code != 0 &&
            out.code != static_cast<int>(ExitCode::kStopped))
          tail->show_banners();
      }
      if (start.passed()) {
        out.code = static_cast<int>(ExitCode::kEnvironment);
        out.cause = say_no_start(job.start_deadline, launcher);
        out.cause_last = true;
        return out;
      }
      if (leaving.passed()) {
        out.code = static_cast<int>(*tail->ranks_done());
        std::fputs(fmt::format("a rank that had nothing left to do has not exited within {} s, and is killed\n",
                               kExitPatience.count())
                       .c_str(),
                   stderr);
      }
      // If a rank has said why it ended, that is the cause, not the signals with which the launcher ended other ranks.
      const bool signalled = out.code > kKilledCode && out.code <= kKilledCode + SIGRTMAX &&
                             !(out.code == kKilledCode + SIGKILL && out.cause.starts_with("rank "));
      if (told_to_stop && out.code == kKilledCode + SIGUSR1)
        out.code = say_too_early();
      else if (interrupted && out.code == 1)  // mpirun exits with 1 after Ctrl-C, and gives its ranks a second to save
        out.code = kKilledCode + SIGINT;
      else if (out.code > kKilledCode + SIGRTMAX)
        out.cause = say_host_lost(out.code, launcher);
      else if (signalled && (WIFEXITED(status) || tail != nullptr))
        out.cause = say_killed(out.code - kKilledCode, launcher);
      // mpirun reports this exit code as a failure, after the ranks' own last line.
      if (trains && out.code == static_cast<int>(ExitCode::kStopped))
        std::fputs("Stopped as asked (exit code 10). Run the same command to resume.\n", stderr);
      return out;
    }
    siginfo_t info;
    const timespec pause = {.tv_sec = 1, .tv_nsec = 0};
    start.watch(child, tail != nullptr && !tail->ranks_started());
    leaving.watch(child, tail != nullptr && tail->ranks_done());
    const int signal = sigtimedwait(&blocked, &info, &pause);
    if (tail != nullptr && tail->ranks_done()) repeats = 0;
    if (told_to_stop && repeats > 0 && signal < 0 && errno == EAGAIN) {
      --repeats;
      kill(child, SIGUSR1);
    }
    if (signal == SIGINT && softly && !told_to_stop) {
      std::fputs("Stopping at the end of this step. Ctrl-C again ends the ranks at once.\n", stderr);
      told_to_stop = true;
      kill(child, SIGUSR1);
      continue;
    }
    interrupted = interrupted || signal == SIGINT;
    if (signal == SIGINT && softly) repeats = 0;  // the launcher is ending the ranks
    // On Ctrl-C the terminal already signals its whole foreground group, including a child that has not left it.
    if (signal < 0 || signal == SIGCHLD || (signal == SIGINT && info.si_code == SI_KERNEL && !softly)) continue;
    told_to_stop = told_to_stop || (trains && (signal == SIGTERM || signal == SIGUSR1));
    kill(child, signal == SIGTERM ? SIGUSR1 : signal);
  }
}

/// The worker's command line flag.
std::string_view flag_of(Work work) {
  switch (work) {
    case Work::kTrain: break;
    case Work::kVerify: return "--verify";
    case Work::kGenerate: return "--generate";
    case Work::kAgainst: return "--against";
    case Work::kCalibrate: return "--calibrate";
    case Work::kCalibrateUsual: return "--calibrate-usual";
    case Work::kCalibrateLinks: return "--calibrate-links";
    case Work::kMeasureRanks: return "--measure-ranks";
  }
  return "";
}

constexpr const char* kWorkerHint =
    "automodel-worker is installed beside automodel; set AUTOMODEL_WORKER where it is elsewhere";

}  // namespace

std::vector<std::string> words_of(const std::string& text) {
  std::istringstream stream(text);
  return {std::istream_iterator<std::string>(stream), {}};
}

bool in_parallel_job() {
  for (const char* name : {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK"})
    if (std::getenv(name) != nullptr) return true;
  return false;
}

bool cuda_present() {
  return has_nvidia_driver() && !find_cuda_plugin(fs::path(worker_path()).parent_path()).empty();
}

std::string worker_path() {
  if (const char* path = std::getenv("AUTOMODEL_WORKER"); path != nullptr && *path != '\0') return path;
  return (program_folder() / "automodel-worker").string();
}

int exec_worker(const RankJob& job) {
  if (job.work == Work::kTrain) {
    // Keep signals pending while the worker loads, until it handles them.
    sigset_t held;
    sigemptyset(&held);
    for (const int signal : {SIGUSR1, SIGTERM, SIGINT}) sigaddset(&held, signal);
    sigprocmask(SIG_BLOCK, &held, nullptr);
  }
  auto alone = job;
  alone.ranks = 1;
  alone.starter.clear();
  return become(rank_words(alone, worker_path()), kWorkerHint);
}

std::vector<std::string> rank_words(const RankJob& job, const std::string& worker) {
  std::vector<std::string> words = job.starter;
  if (words.empty() && job.ranks > 1) {
    words = {"mpirun", "-np", std::to_string(job.ranks), "--bind-to", "none"};
    if (job.ranks > static_cast<int>(std::thread::hardware_concurrency())) words.emplace_back("--oversubscribe");
    if (geteuid() == 0) words.emplace_back("--allow-run-as-root");
    if (!loopback_library().empty()) {  // it is for mpirun alone: ranks get the user's own value
      const char* before = std::getenv(kPreload);
      words.insert(words.end(), {"-x", std::string(kPreload) + "=" + (before == nullptr ? "" : before)});
    }
  }
  words.push_back(worker);
  if (job.start_deadline.count() > 0) words.emplace_back(kTellsMarks);
  if (const auto flag = flag_of(job.work); !flag.empty()) words.emplace_back(flag);
  if (job.threads) words.push_back(fmt::format("--threads={}", *job.threads));
  if (job.json) words.emplace_back("--json");
  if (job.printed == Printed::kEvents) words.emplace_back("--events");
  if (job.printed == Printed::kEventsAndEnd) words.emplace_back("--events-and-end");
  if (!job.recipe.empty()) words.push_back(job.recipe);
  words.insert(words.end(), job.overrides.begin(), job.overrides.end());
  return words;
}

namespace {

RankRun run_job(const RankJob& job, StderrTail* tail) {
  const auto worker = worker_path();
  if (access(worker.c_str(), X_OK) != 0) return {.code = cannot_start(worker, kWorkerHint)};
  sigset_t blocked, before;
  sigemptyset(&blocked);
  for (const int signal : {SIGCHLD, SIGTERM, SIGINT, SIGUSR1, SIGUSR2}) sigaddset(&blocked, signal);
  sigprocmask(SIG_BLOCK, &blocked, &before);
  std::signal(SIGCHLD, SIG_DFL);  // where a parent has left it ignored, the kernel never says that the child has ended
  std::fflush(nullptr);
  const auto words = rank_words(job, worker);
  const pid_t parent = getpid();
  const pid_t child = fork();
  if (child < 0) return {.code = cannot_start(words[0], "the limit on processes is reached")};
  if (child > 0) {
    if (tail != nullptr) tail->start();
    auto out = wait_for(child, job, blocked, tail, fs::path(words[0]).filename().string());
    sigprocmask(SIG_SETMASK, &before, nullptr);
    return out;
  }
  if (stops_softly(job)) leave_foreground();
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (getppid() != parent) _exit(static_cast<int>(ExitCode::kEnvironment));
  sigprocmask(SIG_SETMASK, &before, nullptr);
  winsize size{};
  if (isatty(STDOUT_FILENO) && isatty(STDERR_FILENO) && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0)
    setenv(metrics::kTerminalVariable, std::to_string(size.ws_col).c_str(), 1);
  if (tail != nullptr) tail->become_stderr();
  const bool own = job.starter.empty();
  if (own) listen_on_loopback(job.ranks > 1);
  _exit(become(words, own && job.ranks > 1
                          ? "install Open MPI (scripts/install_dependencies.sh does), or run without --nproc-per-node"
                      : own ? kWorkerHint
                            : "name a program that starts ranks: --start-with \"mpirun -np 8\""));
}

}  // namespace

RankRun watch_ranks(const RankJob& job) {
  StderrTail tail;
  return run_job(job, &tail);
}

int run_ranks(Work work, int ranks, const std::string& recipe, const std::vector<std::string>& overrides) {
  const RankJob job{.work = work, .ranks = ranks, .recipe = recipe, .overrides = overrides};
  return work == Work::kTrain ? watch_ranks(job).code : run_job(job, nullptr).code;
}

}  // namespace automodel::launch
