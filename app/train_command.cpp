#include "launch/train_command.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include "base/error.h"
#include "base/nvidia_driver.h"
#include "checkpoint/format/root_folder.h"
#include "commands.h"
#include "estimate/disk_room.h"
#include "estimate/estimated_plan.h"
#include "estimate/fewer_ranks.h"
#include "launch/hosts.h"
#include "launch/supervisor.h"
#include "metrics/event_log.h"
#include "metrics/event_stream.h"
#include "report.h"
#include "report/plan_text.h"

namespace automodel::app {
namespace {

namespace fs = std::filesystem;

/// The last complete line of a growing file; empty if there is none.
std::string last_line(const fs::path& path) {
  constexpr std::streamoff kEnd = 4096;  // more than the length of a record
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file) return "";
  const std::streamoff size = file.tellg();
  file.seekg(std::max<std::streamoff>(0, size - kEnd));
  std::string text{std::istreambuf_iterator<char>(file), {}};
  const auto end = text.rfind('\n');
  if (end == std::string::npos) return "";
  text.resize(end);
  return text.substr(text.rfind('\n') + 1);
}

/// Tracks a run's progress through the files in its folder.
class Progress {
 public:
  explicit Progress(fs::path root) : root_(std::move(root)), seen_(last_line(records())) {
    std::error_code error;
    fs::create_directories(root_, error);
    marked_ = static_cast<bool>(std::ofstream(mark()) << "a supervisor is watching this run\n");
  }
  ~Progress() {
    std::error_code error;
    fs::remove(mark(), error);
  }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// The folder is gone or was replaced since the run began: its checkpoints are out of reach.
  bool lost_folder() const {
    std::error_code error;
    return marked_ && !fs::exists(mark(), error);
  }

  void look(launch::Attempt& attempt) {
    // A folder that cannot be read now must not prevent the restart: the ranks look themselves.
    const auto newest = checkpoint::newest_seen(root_);
    if (const auto name = checkpoint::parse_checkpoint_name(newest.filename().native()))
      attempt.saved_step = name->step;
    // Records contain a timestamp, so an unchanged last record is from an earlier attempt.
    const auto line = last_line(records());
    if (line == seen_) return;
    seen_ = line;
    const auto record = nlohmann::json::parse(line, nullptr, false);
    if (record.is_object() && record.contains("step") && record["step"].is_number_integer())
      attempt.last_step = record["step"].get<std::int64_t>();
  }
  const fs::path& root() const { return root_; }

 private:
  fs::path records() const { return root_ / "training.jsonl"; }
  fs::path mark() const { return root_ / ".supervised"; }
  fs::path root_;
  std::string seen_;
  bool marked_ = false;
};

std::string content_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// What must not change between restarts: the recipe may have been edited for the next run, or the program reinstalled.
class Unchanged {
 public:
  explicit Unchanged(std::string recipe)
      : recipe_(std::move(recipe)), text_(content_of(recipe_)), worker_(launch::worker_path()), stamp_(stamp()) {}
  std::string differs() const {
    if (content_of(recipe_) != text_) return fmt::format("the recipe '{}'", recipe_);
    return stamp() == stamp_ ? "" : fmt::format("the program '{}'", worker_);
  }

 private:
  std::string stamp() const {
    std::error_code error;
    const auto time = fs::last_write_time(worker_, error).time_since_epoch().count();
    return fmt::format("{} {}", time, fs::file_size(worker_, error));
  }
  std::string recipe_, text_, worker_, stamp_;
};

/// Chooses the ranks of a restart: those on the hosts that still respond, with a mesh that fits them.
class Survivors {
 public:
  Survivors(const config::LoadedRecipe& loaded, const Options& options, launch::HostJob whole,
            estimate::EstimatedPlan plan, int least)
      : loaded_(loaded), options_(options), whole_(std::move(whole)), plan_(std::move(plan)), least_(least) {}

  std::optional<launch::RankJob> next(launch::RankJob job, std::string& why) const {
    const auto there = launch::answering_hosts(whole_, kPatience);
    int left = 0;
    for (const auto& host : there) left += host.slots;
    left = std::min(left, whole_.ranks);
    auto here = whole_;
    here.hosts = there;
    job.starter = launch::put_together(here);
    job.ranks = whole_.ranks;
    job.overrides = options_.overrides;
    if (left == whole_.ranks) return job;
    const auto seen = fmt::format("{} of {} hosts answer ({}), with {} of {} ranks", there.size(), whole_.hosts.size(),
                                  there.empty() ? "none" : launch::names_of(there), left, whole_.ranks);
    if (left < least_) {
      why = fmt::format("{}; --min-ranks requires {}", seen, least_);
      return std::nullopt;
    }
    const auto smaller =
        estimate::plan_for_fewer(loaded_, plan_, {.plan = request(left), .most = left, .least = least_});
    if (!smaller) {
      why = fmt::format("{}; no plan of {} to {} ranks fits", seen, least_, left);
      return std::nullopt;
    }
    job.ranks = smaller->plan.mesh.world_size();
    here.ranks = job.ranks;
    job.starter = launch::put_together(here);
    job.overrides.insert(job.overrides.end(), smaller->words.begin(), smaller->words.end());
    err(fmt::format("{}: continues with {} ranks, {}; the global batch stays at {} sequences\n{}", seen, job.ranks,
                    fmt::join(smaller->words, " "), smaller->plan.batch.global, report::to_text(smaller->plan)));
    return job;
  }

  static estimate::PlanRequest request(int ranks) {
    return {.world_size = ranks, .training = true, .cuda_available = launch::cuda_present(), .gpu = nvidia_gpu()};
  }

 private:
  static constexpr std::chrono::seconds kPatience{20};  // time for a host to start a program

  const config::LoadedRecipe& loaded_;
  const Options& options_;
  launch::HostJob whole_;
  estimate::EstimatedPlan plan_;  ///< for all ranks
  int least_;
};

/// Set if --min-ranks or the recipe asks for it and the command names hosts.
std::optional<Survivors> survivors_of(const config::LoadedRecipe& loaded, const Options& options,
                                      const std::vector<std::string>& starter) {
  const auto least = options.min_ranks ? options.min_ranks : loaded.recipe.fault_tolerance->min_ranks();
  if (!least) return std::nullopt;
  auto job = launch::take_apart(starter);
  if (job.hosts.empty()) {
    if (options.min_ranks)
      throw wrong_words(
          "--min-ranks continues on the remaining hosts, but no hosts are named",
          "name them: '--start-with \"mpirun -np 16 --hostfile HOSTS\"', or '--start-with srun' in a Slurm allocation");
    err("fault_tolerance.min_ranks has no effect: no hosts are named (--start-with \"mpirun -np 16 --hostfile "
        "HOSTS\")\n");
    return std::nullopt;
  }
  if (*least > job.ranks)
    throw wrong_words(fmt::format("--min-ranks {} is more than the {} ranks that are started", *least, job.ranks),
                      "at most as many as --start-with starts");
  auto whole = estimate::make_plan(loaded, Survivors::request(job.ranks));
  if (!whole.plan) throw Error(whole.problems);
  return std::make_optional<Survivors>(loaded, options, std::move(job), std::move(*whole.plan), *least);
}

/// `stream`: null if nobody reads events as they happen.
void note(const Progress& progress, const launch::Attempt& attempt, const launch::Decision& decision,
          const launch::RankJob& next, metrics::EventStream* stream) {
  metrics::Event event{.event = decision.next == launch::Next::kRestart ? "restart" : "gave-up",
                       .step = attempt.last_step,
                       .message = decision.message,
                       .fields = {{"exit_code", static_cast<std::int64_t>(attempt.code)}, {"cause", attempt.cause}}};
  if (decision.next == launch::Next::kRestart)
    event.fields.emplace_back("ranks", static_cast<std::int64_t>(next.ranks));
  if (stream != nullptr) stream->add(event);
  std::error_code error;
  fs::create_directories(progress.root(), error);
  try {
    metrics::EventLog(progress.root()).add(event);
  } catch (const Error& problem) {
    err(problem.what());  // a failure to log must not prevent the restart
  }
}

int supervise(const config::LoadedRecipe& loaded, const Options& options, launch::RankJob job, int max_restarts) {
  const auto survivors = survivors_of(loaded, options, job.starter);
  const auto progress = std::make_shared<Progress>(fs::path(loaded.recipe.checkpoint->checkpoint_dir()));
  const Unchanged unchanged(options.recipe);
  std::optional<metrics::EventStream> stream;
  if (options.json) stream.emplace(STDOUT_FILENO);
  std::function<std::optional<launch::RankJob>(std::string&)> next_job;
  if (survivors) next_job = [&](std::string& why) { return survivors->next(job, why); };
  const auto last = launch::supervise(
      {.job = job,
       .max_restarts = max_restarts,
       .look = [progress](launch::Attempt& attempt) { progress->look(attempt); },
       .changed = [&unchanged] { return unchanged.differs(); },
       .folder_lost = [progress] { return progress->lost_folder() ? progress->root().string() : ""; },
       .next_job = next_job,
       .note =
           [&](const launch::Attempt& attempt, const launch::Decision& decision, const launch::RankJob& next) {
             note(*progress, attempt, decision, next, stream ? &*stream : nullptr);
           }});
  if (stream) stream->add(metrics::end_event(last.code, last.code == code(ExitCode::kOk) ? "" : last.cause));
  return last.code;
}

/// If the recipe fixes its number of ranks, advises that this command started too few or too many.
void advise_ranks(const config::LoadedRecipe& loaded, int ranks, Diagnostics& problems) {
  const auto own = estimate::make_plan(loaded, {.cuda_available = launch::cuda_present()});
  for (auto& problem : problems) {
    if (problem.id != "world-size-mismatch" &&
        !(problem.id == "indivisible" && problem.key.starts_with("distributed.")))
      continue;
    if (own.plan && own.plan->mesh.world_size() != ranks)
      problem.help = fmt::format(
          "start {0} ranks: '--nproc-per-node {0}' on this machine, 'mpirun -np {0}' or 'automodel slurm' on several; "
          "or "
          "change the recipe: {1}",
          own.plan->mesh.world_size(), problem.help);
    else
      problem.help += "; '--nproc-per-node N' starts N ranks on this machine";
  }
}

}  // namespace

int run_train(const Options& options) {
  launch::RankJob job{.work = launch::Work::kTrain, .recipe = options.recipe, .overrides = options.overrides};
  if (options.max_restarts)  // the ranks' words about restarts depend on it
    job.overrides.push_back(fmt::format("--fault_tolerance.max_restarts={}", *options.max_restarts));
  // A rank of a parallel job leaves everything to the worker, where rank 0 reads the recipe for all ranks.
  if (launch::in_parallel_job()) {
    if (options.max_restarts || options.min_ranks || !options.start_with.empty())
      throw wrong_words(
          "ranks under a launcher cannot restart themselves: the launcher ends with them",
          "start it so: 'automodel train RECIPE --max-restarts N --start-with \"mpirun -np 8 --hostfile HOSTS\"'");
    job.printed = options.json ? launch::Printed::kEventsAndEnd : launch::Printed::kLines;
    return launch::exec_worker(job);
  }
  const auto loaded = config::load_recipe(options.recipe, job.overrides, config::process_environment());
  if (!loaded.problems.empty()) return refuse(loaded.problems, loaded, options.json);
  const auto starter = launch::words_of(options.start_with);
  if (!starter.empty() && options.nproc_per_node)
    throw wrong_words("--start-with and --nproc-per-node both start the ranks", "leave one of the two out");
  const int ranks = options.nproc_per_node.value_or(1);
  estimate::PlanRequest situation{.training = true, .cuda_available = launch::cuda_present(), .gpu = nvidia_gpu()};
  if (starter.empty()) situation.world_size = ranks;
  auto result = estimate::make_plan(loaded, situation);
  if (!result.plan) {
    advise_ranks(loaded, ranks, result.problems);
    return refuse(result.problems, loaded, options.json);
  }
  if (auto lacking = estimate::check_disk(*result.plan, loaded.recipe.checkpoint()); !lacking.empty()) {
    locate(lacking, loaded.origins);
    return refuse(lacking, loaded, options.json);
  }
  const int restarts = loaded.recipe.fault_tolerance->max_restarts();
  job.ranks = ranks;
  job.starter = starter;
  if (!starter.empty()) job.ranks = launch::take_apart(starter).ranks;
  if (job.ranks > 1)
    job.start_deadline =
        std::chrono::seconds(std::max(1LL, std::llround(60 * loaded.recipe.fault_tolerance->start_minutes())));
  if (options.json) job.printed = launch::Printed::kEvents;
  if (options.min_ranks && restarts == 0) throw wrong_words("--min-ranks needs restarts", "add '--max-restarts N'");
  if (restarts > 0 || !starter.empty() || options.json) return supervise(loaded, options, std::move(job), restarts);
  return ranks > 1 ? launch::watch_ranks(job).code : launch::exec_worker(job);
}

}  // namespace automodel::app
