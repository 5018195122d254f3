#include "train/run.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <optional>
#include <sstream>
#include <thread>

#include <fmt/format.h>

#include <ATen/Parallel.h>
#include <ATen/ops/tensor.h>

#include "base/bytes.h"
#include "base/log.h"
#include "base/proc_field.h"
#include "base/utf8.h"
#include "base/version.h"
#include "checkpoint/agreement.h"
#include "checkpoint/format/folder_claim.h"
#include "checkpoint/format/root_folder.h"
#include "comm/nccl/nccl.h"
#include "data/prefetch.h"
#include "data/sampler.h"
#include "data/tokenizer.h"
#include "estimate/disk_room.h"
#include "metrics/event_log.h"
#include "metrics/jsonl.h"
#include "report/plan_text.h"
#include "train/checkpointing.h"
#include "train/closing.h"
#include "train/early_stopping.h"
#include "train/evaluate.h"
#include "train/feature_cache.h"
#include "train/generate.h"
#include "train/reports.h"
#include "train/run_estimate.h"
#include "train/run_identity.h"
#include "train/run_trace.h"
#include "train/runtime.h"
#include "train/sample_text.h"
#include "train/setup.h"
#include "train/slow_ranks.h"
#include "train/start_point.h"
#include "train/stop_signal.h"
#include "train/tensor_memory.h"
#include "train/trainer.h"
#include "train/world_settings.h"

namespace automodel::train {
namespace {

using Clock = std::chrono::steady_clock;
namespace fs = std::filesystem;

/// One run: everything that lives from the plan to the last line of output.
class Run {
 public:
  Run(const config::LoadedRecipe& loaded, comm::World& world, const ActionHook& hook, metrics::EventStream* stream)
      : loaded_(loaded), recipe_(loaded.recipe), world_(world), hook_(hook), stream_(stream) {}

  ExitCode execute() {
    use_threads(world_);
    count_tensor_memory();
    setup_ = std::make_unique<Setup>(loaded_, world_);
    claim_folder();
    warn_of_memory();
    build({});
    const std::int64_t first = start_->first_step;
    reports_ = std::make_unique<Reports>(recipe_, world_.rank() == 0, setup_->plan.cuda, first,
                                         setup_->steps->end_step(), stream_);
    if (world_.rank() == 0 && first > 0)
      closing_.recall(reports_->folder(), first, recipe_.checkpoint->best_metric_key());
    estimate_ = std::make_unique<RunEstimate>(setup_->plan, runtime_->place().pp);
    banner();
    const auto from = start_->checkpoint.native();
    metrics::Event start{.event = "start",
                         .step = first,
                         .message = from.empty() ? "a new run" : "goes on from " + from,
                         .fields = {{"ranks", static_cast<std::int64_t>(world_.size())},
                                    {"end_step", setup_->steps->end_step()},
                                    {"folder", absolute_folder()},
                                    {"version", std::string(kVersion)},
                                    {"recipe", recorded_recipe(loaded_)}}};
    if (!from.empty()) {
      start.fields.emplace_back("resumed_from", from);
      start.fields.emplace_back("resumed_source",
                                std::string(start_->kind == StartKind::kMemoryCopy ? "memory" : "disk"));
    }
    reports_->event(start);
    for (const auto& warning : setup_->plan.warnings)
      reports_->event({.event = "warning", .message = warning.message, .fields = {{"id", std::string(warning.id)}}});
    for (const auto& event : start_->events) reports_->event(event);
    estimate_->end_phase(estimate::Phase::kInitialization);
    meet_ranks();
    shares_gpu_ = world_.device().is_cuda() && comm::shared_gpu(world_.control(), world_.device().index());
    const auto code = loop(first);
    compare_with_plan();
    close_report(code);
    checkpointing_->remove_copies();
    reports_->end(code);
    return code;
  }

 private:
  /// Rank 0 holds the folder for all.
  void claim_folder() {
    if (world_.rank() != 0) return;
    constexpr std::chrono::seconds kPatience{3};  // for ranks of an earlier attempt, which are being killed
    const auto& root = recipe_.checkpoint->checkpoint_dir();
    claim_ = std::make_unique<checkpoint::FolderClaim>(root, kPatience);
    if (!claim_->other_host().empty())
      log::warning(
          fmt::format("a run on host {} is writing to '{}', or did when it was lost", claim_->other_host(), root));
    if (auto lacking = estimate::check_disk(setup_->plan, recipe_.checkpoint()); !lacking.empty()) {
      locate(lacking, loaded_.origins);
      throw Error(std::move(lacking));
    }
  }

  /// Said before anything is allocated: where memory is used up, the kernel kills a rank without a word. The estimate
  /// may be too high, so the run starts nevertheless.
  void warn_of_memory() {
    if (!setup_->plan.estimate) return;
    auto lacking = estimate::check_capacity(setup_->plan.estimate->memory);
    if (!lacking) return;
    setup_->plan.warnings.push_back(lacking->at(loaded_.origins.nearest(lacking->key)));
    if (world_.rank() == 0) log::warning(setup_->plan.warnings.back());
  }

  /// Whether the folder is still the one that was claimed.
  void check_folder() {
    checkpoint::together(*start_->ranks, [&] {
      if (claim_) claim_->check();
    });
  }

  /// Builds everything that holds weights. `from`: the checkpoint to resume from, instead of what the recipe says; or
  /// empty.
  void build(const fs::path& from) {
    checkpointing_.reset();  // it refers to the trainer, which in turn refers to the runtime
    trainer_.reset();
    runtime_.reset();
    auto copies = prepare_saving(*setup_);
    start_.emplace(find_start(*setup_, copies.get(), from));
    auto features = cache_features(*setup_, start_->weights);
    if (!features.line.empty()) start_->lines.push_back(std::move(features.line));
    runtime_ = std::make_unique<Runtime>(
        setup_->plan, world_, start_->weights,
        RuntimeOptions{.features = std::move(features.store), .saves = recipe_.checkpoint->enabled()});
    if (hook_) runtime_->pipeline().add_watch([this](const schedule::Slot& slot) { hook_(world_, slot); });
    trainer_ = std::make_unique<Trainer>(*runtime_, start_->rates);
    trainer_->bad_steps() = BadStepRule(recipe_.fault_tolerance());
    if (const auto& slow = recipe_.fault_tolerance->slow_rank(); slow) clock_ = &trainer_->time_phases(slow->steps());
    start_->restore(*trainer_);
    stopping_.emplace(recipe_.step_scheduler(), goes_on() ? start_->state.validations : checkpoint::ValidationTrend());
    checkpointing_ = std::make_unique<Checkpointing>(
        *setup_, *trainer_, *stopping_, *start_, std::move(copies),
        [this](const std::string& line) { reports_->line(line); },
        [this](const metrics::Event& event) { reports_->event(event); });
    if (recipe_.logging->trace() == config::TraceChoice()) return;
    const auto& place = runtime_->place();
    trace_ = std::make_unique<RunTrace>(runtime_->pipeline(), setup_->plan, place.pp,
                                        place.dp == 0 && place.cp == 0 && place.tp == 0);
  }

  /// Whether this is the run that saved the checkpoint, and not one that starts from another's (restore_from): its
  /// validations are then not this run's.
  bool goes_on() const {
    if (!start_->resumed() || start_->kind == StartKind::kMemoryCopy) return true;
    const auto whole = [](const fs::path& path) { return fs::absolute(path).lexically_normal(); };
    return whole(start_->checkpoint).parent_path() ==
           whole(fs::path(recipe_.checkpoint->checkpoint_dir()) / "").parent_path();
  }

  void banner() {
    if (world_.rank() != 0) return;
    reports_->line(report::to_text(setup_->plan));
    // Only what this machine lacks; other warnings are left to `automodel plan`.
    for (const auto& warning : setup_->plan.warnings)
      if (warning.id == "no-gpu-used") reports_->line("warning   " + warning.message);
    reports_->line("data      " + setup_->loader->dataset().summary());
    for (const auto& line : start_->lines) reports_->line(line);
    reports_->line(fmt::format("run       {}, {} thread{} per rank, files in {}", steps_ahead(), at::get_num_threads(),
                               at::get_num_threads() == 1 ? "" : "s", absolute_folder()));
  }
  /// Which steps there are to do, for people.
  std::string steps_ahead() const {
    const auto first = start_->first_step, end = setup_->steps->end_step();
    if (first >= end)
      return fmt::format(
          "all {} steps are done: nothing is left to train (raise step_scheduler.max_steps or num_epochs, or choose "
          "another checkpoint.checkpoint_dir)",
          end);
    if (stopping_->ends())
      return fmt::format(
          "ended early after step {}: nothing is left to train, since {}: raise it, or choose another "
          "checkpoint.checkpoint_dir",
          first - 1, stopping_->reason());
    return fmt::format("steps {} to {}", first, end - 1);
  }
  /// The folder for reports; empty except on rank 0.
  std::string absolute_folder() const {
    return world_.rank() == 0 ? fs::absolute(reports_->folder()).lexically_normal().string() : "";
  }

  /// Peak in GiB: of this process or, on a GPU, of tensors there.
  double peak_memory() {
    if (setup_->plan.cuda)
      peak_bytes_ = std::max(peak_bytes_, static_cast<double>(device_peak()));
    else
      peak_bytes_ = proc_field("/proc/self/status", "VmHWM");
    return peak_bytes_ / (1 << 30);
  }

  /// Whether the step's timeline is recorded. Without a list of steps it is the second step, because the first one
  /// warms up.
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
        {.event = "trace", .step = step, .message = "timelines of the step", .fields = {{"path", path.string()}}});
  }

  /// Prints the last lines of the run.
  void close_report(ExitCode code) {
    if (world_.rank() != 0) return;
    // What generate could be given.
    const auto choice = data::text_choice(*recipe_.dataset());
    const auto& spec = setup_->plan.model->spec;
    const auto& generation = recipe_.generation();
    const bool prompted = generation && !generation->prompts().empty();
    for (const auto& line : closing_.lines({.stopped = code == ExitCode::kStopped,
                            .checkpoint = checkpointing_->newest(),
                            .adapters = setup_->plan.adapters.has_value(),
                            .few_bits = setup_->plan.execution.precision.quantization.has_value(),
                            .has_base = setup_->plan.model->load_weights,
                            .has_text = choice.has_text && spec.classes == 0,
                            .pictures = spec.vision.has_value(),
                            .prompt = prompted ? generation->prompts().front() : "",
                            .chats = choice.chats,
                            .lowest = lowest_saved(),
                            .lowest_loss = checkpointing_->best_loss().value_or(0),
                            .steps_done = start_->first_step}))
      reports_->line(line);
  }

  /// The link to the checkpoint with the lowest validation loss, if that is another one than the newest; else empty.
  std::string lowest_saved() const {
    const auto link = fs::path(recipe_.checkpoint->checkpoint_dir()) / checkpoint::kLowestLoss;
    std::error_code error;
    const bool other = checkpointing_->best_name() != fs::path(checkpointing_->newest()).filename().native();
    return other && fs::exists(link, error) ? link.native() : "";
  }

  void compare_with_plan() {
    std::string json;
    const auto line = estimate_->finish(world_, json);
    if (!line.empty()) reports_->line(line);
    if (json.empty()) return;
    std::ofstream(reports_->folder() / "estimate.json") << json << "\n";
  }

  /// Whether any rank has received a signal. Collective.
  bool asked_to_stop() {
    auto any = at::tensor({StopSignal::received() != 0 ? 1.0 : 0.0}, at::TensorOptions().dtype(at::kDouble));
    world_.control().all_reduce(any, comm::ReduceOp::kMax)->wait();
    return any.item<double>() > 0;
  }

  /// Evaluates all validation sets, as far as no signal comes; returns the loss on the one that checkpoints are ranked
  /// by.
  std::optional<double> validate(const StepPlan& step, double lr) {
    std::optional<double> ranked;
    for (const auto& [name, loader] : setup_->validation) {
      const auto evaluated = evaluate(
          *runtime_, *loader, [this] { return asked_to_stop(); },
          [&](std::int64_t done, std::int64_t all) {
            reports_->status(fmt::format("validation after step {}: {}/{} of '{}'", step.step, done, all, name));
          });
      if (!evaluated) return std::nullopt;
      const auto& result = *evaluated;
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
                            .mem = peak_memory(),
                            .accuracy = result.accuracy,
                            .ce_loss = result.ce_loss,
                            .kd_loss = result.kd_loss},
                           name);
    }
    return ranked;
  }

  /// Ends the run where validation asks for it: the step becomes the last one, which saves.
  void stop_early(StepPlan& step) {
    if (!stopping_->ends() || step.last) return;
    step = setup_->steps->plan(step.step, /*stop_requested=*/true);
    const auto text = fmt::format("ended early after step {}: {}", step.step, stopping_->reason());
    reports_->line(text);
    reports_->event({.event = "early-stop",
                     .step = step.step,
                     .message = text,
                     .fields = {{"validations", stopping_->trend().not_lower}}});
  }

  ExitCode loop(std::int64_t first) {
    const auto end = stopping_->ends() ? first : setup_->steps->end_step();
    data::Prefetcher<std::vector<data::Batch>> batches(
        [this](std::int64_t step) {
          const auto plan = setup_->steps->plan(step);
          return setup_->loader->load(plan.epoch, plan.step_in_epoch);
        },
        first, end);
    for (std::int64_t number = first; number < end; ++number) {
      world_.activity().begin_step(number);
      const bool traced = traces(number, first);
      if (traced) trace_->begin_step();
      const auto begin = Clock::now();
      if (clock_ != nullptr) clock_->begin_step();
      const auto batch = batches.next();
      if (clock_ != nullptr) clock_->end(StepPhase::kData);
      const auto result = trainer_->step(number, batch, StopSignal::received() != 0);
      const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
      if (traced) trace_->end_step();
      auto step = setup_->steps->plan(number, result.stop_requested);
      record(step, result, seconds);
      closing_.add(number, result.loss);
      estimate_->add_step(seconds, result.tokens);
      if (!result.rank_seconds.empty()) compare_ranks(step, result.rank_seconds);
      if (traced) write_trace(number);
      if (result.bad && leave_out(step, *result.bad, batch)) continue;
      if (result.skipped && !result.bad) {
        const auto why = fmt::format("a gradient overflowed float16 at loss scale {:g}; now {:g}", result.grad_scale,
                                     trainer_->scaler()->scale());
        reports_->line(fmt::format("step {} skipped: {}", number, why));
        reports_->event({.event = "overflow", .step = number, .message = why});
      }
      const auto val_loss = step.validate ? validate(step, result.lr) : std::nullopt;
      if (step.validate && !setup_->validation.empty()) estimate_->end_phase(estimate::Phase::kEvaluation);
      // A signal during validation ends it, and does not wait for another step.
      const bool stops = result.stop_requested || (step.validate && !setup_->validation.empty() && asked_to_stop());
      if (val_loss) stopping_->add(*val_loss);
      if (stops)
        step = setup_->steps->plan(number, true);
      else
        stop_early(step);
      if (step.checkpoint && recipe_.checkpoint->enabled()) check_folder();
      checkpointing_->after_step(step, result.loss, val_loss);
      if (step.checkpoint && recipe_.checkpoint->enabled()) estimate_->end_phase(estimate::Phase::kCheckpoint);
      if (stops) {
        reports_->line(fmt::format("stopped by a signal after step {}", number));
        checkpointing_->finish();
        return ExitCode::kStopped;
      }
      if (step.last) break;
    }
    checkpointing_->finish();
    check_folder();
    sample();
    return ExitCode::kOk;
  }

  /// Collects every rank's stage and host on rank 0.
  void meet_ranks() {
    if (clock_ == nullptr) return;
    std::vector<RankPlace> places;
    for (const auto& text : world_.gather_text(fmt::format("{} {}", runtime_->place().pp, world_.host_name()))) {
      auto& place = places.emplace_back();
      std::istringstream(text) >> place.pp >> place.host;
      if (!setup_->plan.estimate) continue;
      const auto& planned = setup_->plan.estimate->time.timeline.ranks;
      if (const auto stage = static_cast<std::size_t>(place.pp); stage < planned.size() && planned[stage].busy > 0)
        place.planned = planned[stage].busy;
    }
    if (world_.rank() == 0) slow_ranks_.emplace(*recipe_.fault_tolerance->slow_rank(), std::move(places));
  }

  /// `seconds`: each rank's times in the window of steps before this one.
  void compare_ranks(const StepPlan& step, const std::vector<PhaseSeconds>& seconds) {
    if (!slow_ranks_) return;
    metrics::RankTimes times{
        .step = step.step - 1, .epoch = step.epoch, .timestamp = metrics::now_seconds(), .steps = clock_->window()};
    const std::array columns = {&times.data, &times.compute, &times.gradients, &times.optimizer, &times.waiting};
    for (const auto& rank : seconds)
      for (std::size_t phase = 0; phase < kStepPhases; ++phase)
        columns[phase]->push_back(std::round(rank[phase] * 1e6) / 1e6);
    reports_->ranks(times);
    for (const auto& slow : slow_ranks_->judge(seconds)) {
      const auto text = slow_ranks_->text_of(slow);
      reports_->line("warning   " + text);
      reports_->event({.event = "slow-rank",
                       .step = times.step,
                       .message = text,
                       .fields = {{"rank", static_cast<std::int64_t>(slow.rank)},
                                  {"host", slow_ranks_->place_of(slow.rank).host},
                                  {"phase", std::string(name_of(slow.phase))},
                                  {"seconds", slow.seconds},
                                  {"usual_seconds", slow.usual}}});
    }
  }

  /// Handles a bad step: reports that it is skipped, with its samples, and rolls back if required. Returns true after a
  /// rollback: the batches since that checkpoint are skipped as well.
  bool leave_out(const StepPlan& step, const BadStep& bad, const std::vector<data::Batch>& batches) {
    // No rollback at the last step: there is nothing left to train, and the current state is saved.
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
    for (const auto& line : start_->lines) reports_->line(line);
    for (const auto& event : start_->events) reports_->event(event);
    trainer_->bad_steps().take_count(rule);
    return true;
  }

  /// The newest complete checkpoint, after waiting for a save in progress.
  fs::path checkpoint_before(std::int64_t step) {
    checkpointing_->finish();
    const auto root = fs::path(recipe_.checkpoint->checkpoint_dir());
    const auto newest = world_.broadcast_text(world_.rank() == 0 ? checkpoint::newest_checkpoint(root).native() : "");
    if (!newest.empty()) return newest;
    throw Error(Diagnostic{"no-checkpoint-before"}
                    .says("step {} is bad, and there is no checkpoint to go back to", step)
                    .hint("save more often (step_scheduler.ckpt_every_steps), or leave such steps out (skip)")
                    .of("fault_tolerance"));
  }

  /// Indices of the step's samples in the data set, over all ranks; on rank 0.
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
    out.accuracy = result.accuracy;
    out.ce_loss = result.ce_loss;
    out.kd_loss = result.kd_loss;
    if (const auto& made = setup_->plan.estimate; made && made->hardware.tells_mfu(shares_gpu_))
      out.mfu = made->time.flops / seconds / (made->hardware.peak * world_.size());
    reports_->step(out);
  }

  /// Generates a few lines of text with the trained model, if the recipe asks for it.
  void sample() {
    const auto& generation = recipe_.generation();
    if (!generation) return;
    const auto choice = data::text_choice(*recipe_.dataset());
    const auto name = choice.tokenizer.value_or("");
    Diagnostics problems;
    const auto own = data::tokenizer_of_model(setup_->plan.model->folder);
    const auto tokenizer = data::open_tokenizer(name.empty() ? own : name, fs::path(loaded_.path).parent_path(),
                                                "dataset.tokenizer", problems, choice.revision);
    agree(world_, loaded_, std::move(problems));
    GenerateOptions options{
        .tokens = generation->max_new_tokens(),
        .temperature = generation->temperature(),
        .longest = setup_->plan.batch.length > 0 ? setup_->plan.batch.length : setup_->plan.model->spec.max_positions,
        .seed = setup_->seed()};
    if (const auto end = tokenizer->eos()) options.ends.push_back(*end);
    Generator generator(*runtime_);
    for (const auto& prompt : generation->prompts()) {
      std::vector<std::int32_t> ids;
      tokenizer->encode(prompt, ids);
      if (ids.empty()) ids.push_back(tokenizer->bos().value_or(0));
      const auto added = generator.continue_text(ids, options);
      const auto text = tokenizer->decode(added);
      const bool cut = std::cmp_equal(added.size(), options.tokens);
      reports_->line(printable_lines(fmt::format("--- {}{}", prompt, up_to_sentence(text, cut))));
      reports_->event({.event = "sample", .message = text, .fields = {{"prompt", prompt}}});
    }
  }

  const config::LoadedRecipe& loaded_;
  const config::Recipe& recipe_;
  comm::World& world_;
  const ActionHook& hook_;
  metrics::EventStream* stream_;
  std::unique_ptr<checkpoint::FolderClaim> claim_;  ///< on rank 0
  std::unique_ptr<Setup> setup_;
  std::optional<StartPoint> start_;
  double peak_bytes_ = 0;  ///< accumulated here because the estimate resets the GPU's peak in each phase
  std::unique_ptr<Runtime> runtime_;
  std::unique_ptr<Trainer> trainer_;
  std::optional<EarlyStopping> stopping_;
  std::unique_ptr<Checkpointing> checkpointing_;  // refers to the two before; build() replaces all four
  PhaseClock* clock_ = nullptr;                   ///< owned by the trainer; null unless requested
  std::optional<SlowRanks> slow_ranks_;           ///< on rank 0
  std::unique_ptr<Reports> reports_;
  std::unique_ptr<RunEstimate> estimate_;
  bool shares_gpu_ = false;  ///< some ranks compute on the same GPU, each with a part of its peak
  std::unique_ptr<RunTrace> trace_;
  Closing closing_;
};

}  // namespace

ExitCode run_training(const config::LoadedRecipe& loaded, comm::World& world, const ActionHook& hook,
                      metrics::EventStream* stream) {
  return Run(loaded, world, hook, stream).execute();
}

}  // namespace automodel::train
