#include "train/run.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <thread>

#include <fmt/format.h>

#include <ATen/Parallel.h>

#include "base/bytes.h"
#include "base/log.h"
#include "base/proc_field.h"
#include "base/version.h"
#include "checkpoint/format/root_folder.h"
#include "data/prefetch.h"
#include "data/sampler.h"
#include "data/tokenizer.h"
#include "metrics/console.h"
#include "metrics/event_log.h"
#include "metrics/jsonl.h"
#include "metrics/tensorboard.h"
#include "plan/plan_text.h"
#include "train/checkpointing.h"
#include "train/closing.h"
#include "train/evaluate.h"
#include "train/generate.h"
#include "train/run_estimate.h"
#include "train/run_identity.h"
#include "train/run_trace.h"
#include "train/runtime.h"
#include "train/setup.h"
#include "train/stop_signal.h"
#include "train/tensor_memory.h"
#include "train/trainer.h"
#include "train/world_settings.h"

namespace automodel::train {
namespace {

using Clock = std::chrono::steady_clock;
namespace fs = std::filesystem;

/// Where the metrics go; files on rank 0 only.
class Reports {
 public:
  ~Reports() {
    if (stream_ != nullptr) log::set_listener({});
    if (console_) log::set_before_line(nullptr);
  }
  Reports(const Reports&) = delete;
  Reports& operator=(const Reports&) = delete;
  Reports(const config::Recipe& recipe, bool active, bool cuda, std::int64_t first_step, std::int64_t end_step,
          metrics::EventStream* stream)
      : recipe_(recipe) {
    if (!active) return;
    stream_ = stream;
    folder_ = recipe.checkpoint->checkpoint_dir();
    std::error_code error;
    fs::create_directories(folder_, error);
    if (error)
      throw Error(ExitCode::kEnvironment,
                  {"cannot-write",
                   fmt::format("the folder '{}' cannot be made: {}", folder_.string(), error.message()),
                   "choose another checkpoint.checkpoint_dir",
                   {},
                   "checkpoint.checkpoint_dir"});
    first_step_ = first_step;
    if (recipe.logging->jsonl()) training_.emplace(folder_ / "training.jsonl", first_step);
    if (recipe.logging->jsonl()) history_.emplace(folder_);
    if (recipe.logging->tensorboard()) events_.emplace(folder_, first_step);
    metrics::ConsoleOptions console{.progress = recipe.logging->progress(),
                                    .first_step = first_step,
                                    .end_step = end_step,
                                    .share = cuda ? "gpu" : "rank"};
    if (stream_ != nullptr) {
      console.lines = console.bar;
      log::set_listener(
          [stream](std::string_view text) { stream->add({.event = "warning", .message = std::string(text)}); });
    }
    if (const char* columns = std::getenv(metrics::kTerminalVariable)) {
      console.columns = std::atoi(columns);
      console.bar = console.lines;
    }
    console_ = std::make_unique<metrics::Console>(console);
    log::set_before_line([this] { console_->clear_bar(); });
  }
  void line(const std::string& text) {
    if (console_) console_->line(text);
  }
  void step(const metrics::StepRecord& record) {
    if (!console_) return;
    console_->step(record);
    if (stream_ != nullptr) stream_->step(record);
    if (training_) training_->append(metrics::view_of(record));
    if (events_) events_->append(metrics::view_of(record), "train");
  }
  void validation(const metrics::ValidationRecord& record, const std::string& name) {
    if (!console_) return;
    console_->validation(record, name);
    if (stream_ != nullptr) stream_->validation(record, name);
    if (recipe_.logging->jsonl()) {
      const std::string file = name == "default" ? "validation.jsonl" : "validation_" + name + ".jsonl";
      auto found = validation_.find(name);
      if (found == validation_.end())
        found = validation_.emplace(name, std::make_unique<metrics::JsonLines>(folder_ / file, first_step_)).first;
      found->second->append(metrics::view_of(record));
    }
    if (events_) events_->append(metrics::view_of(record), name == "default" ? "validation" : "validation_" + name);
  }
  void event(const metrics::Event& event) {
    if (history_) history_->add(event);
    if (stream_ != nullptr) stream_->add(event);
  }
  /// The run's last event. The stream has it from the one who knows the exit code of all ranks.
  void end(ExitCode code) {
    if (history_) history_->add(metrics::end_event(static_cast<int>(code), ""));
  }
  const fs::path& folder() const { return folder_; }

 private:
  const config::Recipe& recipe_;
  metrics::EventStream* stream_ = nullptr;
  fs::path folder_;
  std::int64_t first_step_ = 0;
  std::optional<metrics::JsonLines> training_;
  std::optional<metrics::EventLog> history_;
  std::map<std::string, std::unique_ptr<metrics::JsonLines>> validation_;
  std::optional<metrics::EventFile> events_;
  std::unique_ptr<metrics::Console> console_;
};

/// One run: everything that lives from the plan to the last line.
class Run {
 public:
  Run(const config::LoadedRecipe& loaded, comm::World& world, const ActionHook& hook, metrics::EventStream* stream)
      : loaded_(loaded), recipe_(loaded.recipe), world_(world), hook_(hook), stream_(stream) {}

  ExitCode execute() {
    use_threads(world_);
    count_tensor_memory();
    setup_ = std::make_unique<Setup>(loaded_, world_);
    build({});
    const std::int64_t first = checkpointing_->first_step();
    reports_ = std::make_unique<Reports>(recipe_, world_.rank() == 0, setup_->plan.cuda, first,
                                         setup_->steps->end_step(), stream_);
    estimate_ = std::make_unique<RunEstimate>(setup_->plan, runtime_->place().pp);
    banner();
    reports_->event({.event = "start",
                     .step = first,
                     .message = checkpointing_->resumed_from().empty()
                                    ? "a new run"
                                    : "goes on from " + checkpointing_->resumed_from(),
                     .fields = {{"ranks", static_cast<std::int64_t>(world_.size())},
                                {"end_step", setup_->steps->end_step()},
                                {"folder", absolute_folder()},
                                {"version", std::string(kVersion)},
                                {"recipe", recorded_recipe(loaded_)}}});
    for (const auto& warning : setup_->plan.warnings)
      reports_->event({.event = "warning", .message = warning.message, .fields = {{"id", warning.id}}});
    for (const auto& event : early_events_) reports_->event(event);
    estimate_->end_phase(plan::Phase::kInitialization);
    const auto code = loop(first);
    compare_with_plan();
    close_report(code);
    reports_->end(code);
    return code;
  }

 private:
  /// Everything that holds weights. `from`: the checkpoint to go on from, in place of what the recipe says.
  void build(const fs::path& from) {
    checkpointing_.reset();  // it refers to the trainer, and that to the runtime
    trainer_.reset();
    runtime_.reset();
    checkpointing_ = std::make_unique<Checkpointing>(
        *setup_, [this](const std::string& line) { say(line); }, from,
        [this](const metrics::Event& event) { note(event); });
    runtime_ = std::make_unique<Runtime>(setup_->plan, world_, checkpointing_->weights());
    if (hook_) runtime_->executor().add_watch([this](const schedule::Slot& slot) { hook_(world_, slot); });
    trainer_ = std::make_unique<Trainer>(*runtime_, checkpointing_->rates());
    trainer_->bad_steps() = BadStepRule(recipe_.fault_tolerance());
    checkpointing_->restore(*trainer_);
    if (recipe_.logging->trace() == config::TraceChoice()) return;
    const auto& place = runtime_->place();
    trace_ = std::make_unique<RunTrace>(runtime_->executor(), setup_->plan, place.pp,
                                        place.dp == 0 && place.cp == 0 && place.tp == 0);
  }

  void banner() {
    if (world_.rank() != 0) return;
    reports_->line(plan::to_text(setup_->plan));
    reports_->line("data      " + setup_->loader->dataset().summary());
    for (const auto& line : early_lines_) reports_->line(line);
    const auto first = checkpointing_->first_step(), end = setup_->steps->end_step();
    reports_->line(fmt::format("run       {}, {} thread{} a rank, files in {}",
                               first < end ? fmt::format("steps {} to {}", first, end - 1)
                                           : fmt::format("all {} steps are done: nothing is left to train", end),
                               at::get_num_threads(), at::get_num_threads() == 1 ? "" : "s", absolute_folder()));
  }
  /// On rank 0, which has one.
  std::string absolute_folder() const {
    return world_.rank() == 0 ? fs::absolute(reports_->folder()).lexically_normal().string() : "";
  }

  /// GiB: of this process, or on a GPU of tensors there.
  double peak_memory() {
    if (setup_->plan.cuda)
      peak_bytes_ = std::max(peak_bytes_, static_cast<double>(device_peak()));
    else
      peak_bytes_ = proc_field("/proc/self/status", "VmHWM");
    return peak_bytes_ / (1 << 30);
  }

  /// Lines for people, kept until there is a place for them.
  void say(const std::string& line) {
    if (reports_)
      reports_->line(line);
    else
      early_lines_.push_back(line);
  }

  void note(const metrics::Event& event) {
    if (reports_)
      reports_->event(event);
    else if (world_.rank() == 0)
      early_events_.push_back(event);
  }

  /// Whether the step's time line is recorded. Without a list it is the second step: the first one warms up.
  bool traces(std::int64_t step, std::int64_t first) const {
    const auto& choice = recipe_.logging->trace();
    if (!choice.file) return std::find(choice.steps.begin(), choice.steps.end(), step) != choice.steps.end();
    return step == std::min(first + 1, setup_->steps->end_step() - 1);
  }

  void write_trace(std::int64_t step) {
    const auto text = trace_->finish(world_);
    if (text.empty()) return;
    const auto& choice = recipe_.logging->trace();
    const auto path = reports_->folder() / choice.file.value_or(fmt::format("trace_{}.json", step));
    std::ofstream(path, std::ios::binary) << text;
    reports_->line(fmt::format("trace     {}", path.string()));
    reports_->event(
        {.event = "trace", .step = step, .message = "time lines of the step", .fields = {{"path", path.string()}}});
  }

  /// The last words.
  void close_report(ExitCode code) {
    if (world_.rank() != 0) return;
    const bool text = std::visit(
        [](const auto& data) {
          if constexpr (requires { data.tokenizer(); })
            return true;
          else
            return false;
        },
        *recipe_.dataset());
    for (const auto& line : closing_.lines({.stopped = code == ExitCode::kStopped,
                            .checkpoint = checkpointing_->newest(),
                            .adapters = setup_->plan.adapters.has_value(),
                            .has_text = text,
                            .steps_done = checkpointing_->first_step()}))
      reports_->line(line);
  }

  void compare_with_plan() {
    std::string json;
    const auto line = estimate_->finish(world_, json);
    if (line.empty()) return;
    reports_->line(line);
    std::ofstream(reports_->folder() / "estimate.json") << json << "\n";
  }

  /// The loss of the set that checkpoints are ranked by.
  std::optional<double> validate(const StepPlan& step, double lr) {
    std::optional<double> ranked;
    for (const auto& [name, loader] : setup_->validation) {
      const auto result = evaluate(*runtime_, *loader);
      if (name == recipe_.checkpoint->best_metric_key()) {
        ranked = result.loss;
        closing_.add_validation(step.step, result.loss);
      }
      reports_->validation({.step = step.step,
                            .epoch = step.epoch,
                            .timestamp = metrics::now_seconds(),
                            .val_loss = result.loss,
                            .lr = lr,
                            .num_label_tokens = result.label_tokens,
                            .mem = peak_memory()},
                           name);
    }
    return ranked;
  }

  ExitCode loop(std::int64_t first) {
    data::Prefetcher<std::vector<data::Batch>> batches(
        [this](std::int64_t step) {
          const auto plan = setup_->steps->plan(step);
          return setup_->loader->load(plan.epoch, plan.step_in_epoch);
        },
        first, setup_->steps->end_step());
    for (std::int64_t number = first; number < setup_->steps->end_step(); ++number) {
      world_.activity().begin_step(number);
      const bool traced = traces(number, first);
      if (traced) trace_->begin_step();
      const auto begin = Clock::now();
      const auto batch = batches.next();
      const auto result = trainer_->step(number, batch, StopSignal::received() != 0);
      const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
      if (traced) trace_->end_step();
      const auto step = setup_->steps->plan(number, result.stop_requested);
      record(step, result, seconds);
      closing_.add(number, result.loss);
      estimate_->add_step(seconds);
      if (traced) write_trace(number);
      if (result.bad && leave_out(step, *result.bad, batch)) continue;
      if (result.skipped && !result.bad) {
        const auto why = fmt::format("a gradient overflowed float16 at loss scale {:g}; now {:g}", result.grad_scale,
                                     trainer_->scaler()->scale());
        reports_->line(fmt::format("step {} skipped: {}", number, why));
        reports_->event({.event = "overflow", .step = number, .message = why});
      }
      const auto val_loss = step.validate ? validate(step, result.lr) : std::nullopt;
      if (step.validate && !setup_->validation.empty()) estimate_->end_phase(plan::Phase::kEvaluation);
      checkpointing_->after_step(step, result.loss, val_loss);
      if (step.checkpoint && recipe_.checkpoint->enabled()) estimate_->end_phase(plan::Phase::kCheckpoint);
      if (result.stop_requested) {
        reports_->line(fmt::format("stopped by a signal after step {}", number));
        checkpointing_->finish();
        return ExitCode::kStopped;
      }
      if (step.last) break;
    }
    checkpointing_->finish();
    sample();
    return ExitCode::kOk;
  }

  /// Says which step is left out, with its samples. True where the run went back to a checkpoint for it: the batches
  /// since then are left out as well.
  bool leave_out(const StepPlan& step, const BadStep& bad, const std::vector<data::Batch>& batches) {
    // Behind the last step there is nothing to train: what is there is saved.
    const bool back = bad.action == config::BadStepAction::kRollback && !step.last;
    const auto from = back ? checkpoint_before(step.step) : fs::path();
    const auto samples = sample_numbers(batches);
    const auto what = back ? fmt::format("back to {}, on with step {}", from.native(), step.step + 1)
                           : std::string("the update is left out");
    reports_->line(fmt::format("step {} is bad: {}: {}", step.step, bad.reason, what));
    reports_->event(
        {.event = back ? "rollback" : "skip",
         .step = step.step,
         .message = bad.reason + ": " + what,
         .fields = {{"reason", std::string(bad.spike ? "loss-spike" : "non-finite")}, {"samples", samples}}});
    if (!back) return false;
    const auto rule = trainer_->bad_steps();
    build(from);
    trainer_->bad_steps().take_count(rule);
    return true;
  }

  /// The newest complete checkpoint, which a save under way may become.
  fs::path checkpoint_before(std::int64_t step) {
    checkpointing_->finish();
    const auto root = fs::path(recipe_.checkpoint->checkpoint_dir());
    const auto newest = world_.broadcast_text(world_.rank() == 0 ? checkpoint::newest_checkpoint(root).native() : "");
    if (!newest.empty()) return newest;
    throw Error(ExitCode::kNonFinite,
                {"no-checkpoint-before",
                 fmt::format("step {} is bad, and there is no checkpoint to go back to", step),
                 "save more often (step_scheduler.ckpt_every_steps), or leave such steps out (skip)",
                 {},
                 "fault_tolerance"});
  }

  /// Numbers of the samples in the data set, of all ranks; on rank 0.
  std::string sample_numbers(const std::vector<data::Batch>& batches) {
    const auto& place = runtime_->place();
    std::vector<std::int64_t> mine;
    if (place.pp == 0 && place.cp == 0 && place.tp == 0)
      for (const auto& batch : batches)
        std::copy_if(batch.samples.begin(), batch.samples.end(), std::back_inserter(mine),
                     [](std::int64_t sample) { return sample != data::kNoSample; });
    std::string out;
    for (const auto& each : world_.gather_text(fmt::format("{}", fmt::join(mine, " "))))
      if (!each.empty()) out += (out.empty() ? "" : " ") + each;
    return out;
  }

  void record(const StepPlan& step, const StepResult& result, double seconds) {
    metrics::StepRecord out{.step = step.step,
                            .epoch = step.epoch,
                            .timestamp = metrics::now_seconds(),
                            .loss = result.loss,
                            .grad_norm = result.grad_norm,
                            .lr = result.lr,
                            .mem = peak_memory()};
    out.tps = static_cast<double>(result.tokens) / seconds;
    out.tps_per_gpu = out.tps / world_.size();
    out.num_tokens_per_step = result.tokens;
    out.num_label_tokens = result.label_tokens;
    out.step_time = seconds;
    if (const auto peak = recipe_.hardware->peak_tflops(); peak && setup_->plan.estimate)
      out.mfu = setup_->plan.estimate->time.flops / seconds / (*peak * 1e12 * world_.size());
    reports_->step(out);
  }

  /// A few lines of text from the trained model, where the recipe asks for them.
  void sample() {
    const auto& generation = recipe_.generation();
    if (!generation) return;
    const auto name = data::text_choice(*recipe_.dataset()).tokenizer.value_or("");
    Diagnostics problems;
    const auto& model = setup_->plan.model->folder;
    const auto tokenizer = data::open_tokenizer(name.empty() ? model.empty() ? "bytes" : model.native() : name,
                                                fs::path(loaded_.path).parent_path(), "dataset.tokenizer", problems);
    agree(world_, loaded_, std::move(problems));
    GenerateOptions options{.tokens = generation->max_new_tokens(),
                            .temperature = generation->temperature(),
                            .longest = std::max<std::int64_t>(setup_->plan.batch.planned_length(), 1),
                            .seed = setup_->seed()};
    if (const auto end = tokenizer->eos()) options.ends.push_back(*end);
    Generator generator(*runtime_);
    for (const auto& prompt : generation->prompts()) {
      std::vector<std::int32_t> ids;
      tokenizer->encode(prompt, ids);
      if (ids.empty()) ids.push_back(tokenizer->bos().value_or(0));
      const auto added = generator.continue_text(ids, options);
      const auto text = tokenizer->decode(added);
      reports_->line(fmt::format("--- {}{}", prompt, text));
      reports_->event({.event = "sample", .message = text, .fields = {{"prompt", prompt}}});
    }
  }

  const config::LoadedRecipe& loaded_;
  const config::Recipe& recipe_;
  comm::World& world_;
  const ActionHook& hook_;
  metrics::EventStream* stream_;
  std::unique_ptr<Setup> setup_;
  std::vector<std::string> early_lines_;
  std::vector<metrics::Event> early_events_;
  double peak_bytes_ = 0;  ///< bytes; the estimate counts anew in each phase
  std::unique_ptr<Runtime> runtime_;
  std::unique_ptr<Trainer> trainer_;
  std::unique_ptr<Checkpointing> checkpointing_;  // refers to the trainer; build() makes these three
  std::unique_ptr<Reports> reports_;
  std::unique_ptr<RunEstimate> estimate_;
  std::unique_ptr<RunTrace> trace_;
  Closing closing_;
};

}  // namespace

ExitCode run_training(const config::LoadedRecipe& loaded, comm::World& world, const ActionHook& hook,
                      metrics::EventStream* stream) {
  return Run(loaded, world, hook, stream).execute();
}

}  // namespace automodel::train
