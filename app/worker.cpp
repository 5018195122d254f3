// One rank of a training run. `automodel train` and `automodel verify` become this program: automodel-worker
// [--verify|--calibrate] RECIPE [OVERRIDE...]. It also serves `automodel plan --calibrate`, without a recipe for
// --calibrate-usual and --calibrate-links; `automodel generate`, with --generate REQUEST (JSON); `automodel
// verify --against`, with --against [--json] DIR [TOLERANCE]; `automodel doctor
// --ranks`, with --measure-ranks [--json]; and `automodel doctor`, to which --load-cuda-half reports what its CUDA half
// contains. With --events a training run prints JSON lines, with --events-and-end also how it ended.
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <unistd.h>

#include "base/cuda_plugin.h"
#include "base/error.h"
#include "base/log.h"
#include "base/rank_marks.h"
#include "base/terminal.h"
#include "comm/backends.h"
#include "comm/ending.h"
#include "comm/world.h"
#include "config/recipe.h"
#include "cuda_half/cuda_half.h"
#include "cuda_half/nvrtc.h"
#include "metrics/event_stream.h"
#include "metrics/jsonl.h"
#include "metrics/watcher.h"
#include "metrics/write_all.h"
#include "report/plan_json.h"
#include "train/against_run.h"
#include "train/calibrate.h"
#include "train/generate_run.h"
#include "train/rank_meter.h"
#include "train/run.h"
#include "train/stop_signal.h"
#include "train/tensor_memory.h"
#include "train/torch_version.h"
#include "train/verify_run.h"

namespace {

using namespace automodel;  // NOLINT(google-build-using-namespace): this file is the program

/// Rank 0 reads the recipe; all ranks parse the same bytes.
config::LoadedRecipe load(comm::World& world, const std::string& path, const std::vector<std::string>& words) {
  std::string text;
  bool readable = true;
  if (world.rank() == 0) {
    std::ifstream file(path, std::ios::binary);
    readable = static_cast<bool>(file);
    if (readable) text.assign(std::istreambuf_iterator<char>(file), {});
    text = (readable ? "+" : "-") + text;
  }
  text = world.broadcast_text(text);
  if (text.starts_with("-")) return config::load_recipe(path, words, config::process_environment());
  Diagnostics problems;
  const auto overrides = config::parse_overrides(words, problems);
  auto loaded = config::read_recipe(text.substr(1), path, overrides, config::process_environment());
  loaded.problems.insert(loaded.problems.begin(), problems.begin(), problems.end());
  return loaded;
}

bool started_by_launcher() {
  for (const char* name : {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK"})
    if (std::getenv(name) != nullptr) return true;
  return false;
}

int load_cuda_half_alone() {
  if (const auto problem = load_cuda_half()) {
    std::fputs(for_terminal(to_text(Diagnostics{*problem}), STDERR_FILENO).c_str(), stderr);
    return static_cast<int>(ExitCode::kEnvironment);
  }
  std::puts(cuda_half_versions().c_str());
  if (const auto problem = kernel_compiler_problem(); !problem.empty())
    std::puts((std::string(kNoKernelCompiler) + problem).c_str());
  return 0;
}

std::string first_line(const std::string& text) {
  return text.substr(0, text.find('\n'));
}

std::vector<std::string> watcher_words(const std::string& command, const config::LoadedRecipe& loaded) {
  try {
    return metrics::watcher_words(command, loaded.folder());
  } catch (const Error& error) {
    auto problems = error.problems();
    locate(problems, loaded.origins);
    throw Error(problems);
  }
}

/// `end`: the last event, unless the stream has passed it on.
void end_watching(metrics::Watcher& watcher, const metrics::Event* end,
                  std::chrono::milliseconds limit = std::chrono::milliseconds::max()) {
  if (end != nullptr) watcher.offer(metrics::json_line(*end, metrics::now_seconds()));
  watcher.finish(limit);
  for (const auto& note : watcher.take_notes()) log::warning(note);
}

}  // namespace

int main(int argc, char** argv) {
  if (const auto problem = train::torch_problem()) {
    std::fputs(to_text(Diagnostics{*problem}).c_str(), stderr);
    return static_cast<int>(problem->exit());
  }
  if (argc < 2) {
    std::fprintf(stderr, "automodel-worker is started by 'automodel train'\nLibTorch %s\n",
                 train::torch_version_text(train::loaded_torch()).c_str());
    return static_cast<int>(ExitCode::kBadInput);
  }
  if (std::string_view(argv[1]) == "--load-cuda-half") return load_cuda_half_alone();
  train::keep_freed_memory();
  std::signal(SIGXFSZ, SIG_IGN);  // exceeding the file size limit becomes an error with a cause instead of a signal
  std::vector<std::string> words(argv + 1, argv + argc);
  const auto take = [&](const char* flag) {
    const bool found = !words.empty() && words.front() == flag;
    if (found) words.erase(words.begin());
    return found;
  };
  const bool tells_marks = take(kTellsMarks);
  const bool with_end = take("--events-and-end"), with_events = take("--events") || with_end;
  const bool verify = take("--verify"), generate = take("--generate"), against = take("--against");
  std::optional<int> threads;
  if (verify && !words.empty() && words.front().starts_with("--threads=")) {
    threads = std::stoi(words.front().substr(words.front().find('=') + 1));
    words.erase(words.begin());
  }
  const bool verify_json = (verify || against) && take("--json");
  const auto calibrates = take("--calibrate")         ? std::optional(train::Measured::kModel)
                          : take("--calibrate-usual") ? std::optional(train::Measured::kUsualModels)
                          : take("--calibrate-links") ? std::optional(train::Measured::kLinks)
                                                      : std::nullopt;
  const bool ranks = take("--measure-ranks"), as_json = ranks && take("--json");
  const bool needs_recipe = !ranks && calibrates.value_or(train::Measured::kModel) == train::Measured::kModel;
  if (words.empty() && needs_recipe) return static_cast<int>(ExitCode::kBadInput);
  std::optional<train::StopSignal> stop;
  if (!verify && !generate && !against && !calibrates && !ranks) stop.emplace();
  std::string recipe;
  if (needs_recipe) {
    recipe = words.front();
    words.erase(words.begin());
  }
  int code = 0;
  try {
    std::optional<metrics::Watcher> watcher;
    std::optional<metrics::EventStream> stream;
    const int events = with_events ? metrics::take_standard_output() : -1;
    if (with_events) stream.emplace(events);
    if (verify && !started_by_launcher()) {
      const auto loaded = config::load_recipe(recipe, words, config::process_environment());
      if (!loaded.problems.empty()) throw Error(ExitCode::kBadInput, loaded.problems);
      return static_cast<int>(train::run_verification_alone(loaded, threads, verify_json));
    }
    const auto world = comm::open_world(started_by_launcher() && !against ? "mpi" : "loopback", {});
    const bool tells = tells_marks && world->rank() == 0;
    if (tells) metrics::write_all(STDERR_FILENO, kStartMark);
    std::optional<Error> refused;
    const auto work = [&](comm::World& w) {
      if (ranks) {
        code = static_cast<int>(train::run_rank_meter(w, as_json));
        return;
      }
      if (!needs_recipe) return train::run_calibration({}, w, *calibrates);
      if (generate) {
        code = static_cast<int>(train::run_generation(recipe, w));
        return;
      }
      if (against) {
        const auto tolerance = words.empty() ? std::nullopt : std::optional(std::stod(words.front()));
        try {
          code = static_cast<int>(train::run_against(recipe, tolerance, verify_json, w));
        } catch (const Error& error) {  // of a single process, without a rank in front
          refused = error;
        }
        return;
      }
      const auto loaded = load(w, recipe, words);
      if (!loaded.problems.empty()) throw Error(ExitCode::kBadInput, loaded.problems);
      if (calibrates) return train::run_calibration(loaded, w, *calibrates);
      if (stop) stop->watch(loaded.recipe.step_scheduler->preemption_signal->signals);
      if (const auto& command = loaded.recipe.logging->command(); command && !verify && w.rank() == 0) {
        watcher.emplace(watcher_words(*command, loaded));
        stream.emplace(events, &*watcher);
      }
      code = static_cast<int>(verify ? train::run_verification(loaded, w, verify_json)
                                     : train::run_training(loaded, w, {}, stream ? &*stream : nullptr));
    };
    comm::run_guarded(*world, [&](comm::World& w) {
      const bool says_end = with_end && w.rank() == 0;
      try {
        work(w);
      } catch (...) {
        const auto last = comm::ending();
        const auto end = metrics::end_event(static_cast<int>(last.code), first_line(last.text));
        if (says_end) stream->add(end);
        // The other ranks run, or wait for this one, until it aborts the job.
        if (watcher) end_watching(*watcher, says_end ? nullptr : &end, std::chrono::seconds(2));
        throw;
      }
      const auto end = metrics::end_event(code, "");
      if (says_end) stream->add(end);
      if (watcher) end_watching(*watcher, says_end ? nullptr : &end);
    });
    if (tells && (code == static_cast<int>(ExitCode::kOk) || code == static_cast<int>(ExitCode::kStopped)))
      metrics::write_all(STDERR_FILENO, code == 0 ? kDoneMark : kStoppedMark);
    if (refused) throw Error(*refused);
  } catch (const Error& error) {
    if (verify_json)
      std::puts(report::errors_to_json(error.problems()).c_str());
    else
      std::fputs(for_terminal(error.what(), STDERR_FILENO).c_str(), stderr);
    return static_cast<int>(error.code());
  }
  return code;
}
