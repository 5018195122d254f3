#include "train/run.h"

#include <chrono>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <optional>
#include <thread>

#include <fmt/format.h>

#include <ATen/Parallel.h>
#include <ATen/ops/tensor.h>

#include "base/bytes.h"
#include "data/loader.h"
#include "data/open_dataset.h"
#include "data/prefetch.h"
#include "data/tokenizer.h"
#include "metrics/console.h"
#include "metrics/jsonl.h"
#include "metrics/tensorboard.h"
#include "plan/plan_text.h"
#include "train/evaluate.h"
#include "train/generate.h"
#include "train/initial_values.h"
#include "train/runtime.h"
#include "train/step_scheduler.h"
#include "train/stop_signal.h"
#include "train/trainer.h"

namespace automodel::train {
namespace {

using Clock = std::chrono::steady_clock;
namespace fs = std::filesystem;

double now_seconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

/// Peak resident memory of this process in GiB.
double peak_memory() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("VmHWM:")) return std::stod(line.substr(6)) / (1 << 20);
  return 0;
}

/// Problems found on any rank end the run on all of them, with the text of the first.
void agree(comm::World& world, const config::LoadedRecipe& loaded, Diagnostics problems) {
  for (auto& problem : problems)
    if (problem.where.file.empty()) problem.where = loaded.origins.nearest(problem.key);
  auto count = at::tensor({static_cast<double>(problems.size())}, at::TensorOptions().dtype(at::kDouble));
  world.control().all_reduce(count, comm::ReduceOp::kMax)->wait();
  if (!problems.empty()) throw Error(ExitCode::kBadInput, std::move(problems));
  // Another rank has them and ends the job.
  if (count.item<double>() > 0) world.control().barrier()->wait();
}

/// Where the metrics go; files on rank 0 only.
class Reports {
 public:
  Reports(const config::Recipe& recipe, bool active, std::int64_t first_step, std::int64_t end_step) : recipe_(recipe) {
    if (!active) return;
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
    if (recipe.logging->tensorboard()) events_.emplace(folder_, first_step);
    console_ = std::make_unique<metrics::Console>(metrics::ConsoleOptions{
        .progress = recipe.logging->progress(), .first_step = first_step, .end_step = end_step});
  }

  void line(const std::string& text) {
    if (console_) console_->line(text);
  }
  void step(const metrics::StepRecord& record) {
    if (!console_) return;
    console_->step(record);
    if (training_) training_->append(metrics::view_of(record));
    if (events_) events_->append(metrics::view_of(record), "train");
  }
  void validation(const metrics::ValidationRecord& record, const std::string& name) {
    if (!console_) return;
    console_->validation(record, name);
    if (recipe_.logging->jsonl()) {
      const std::string file = name == "default" ? "validation.jsonl" : "validation_" + name + ".jsonl";
      auto found = validation_.find(name);
      if (found == validation_.end())
        found = validation_.emplace(name, std::make_unique<metrics::JsonLines>(folder_ / file, first_step_)).first;
      found->second->append(metrics::view_of(record));
    }
    if (events_) events_->append(metrics::view_of(record), name == "default" ? "validation" : "validation_" + name);
  }
  const fs::path& folder() const { return folder_; }

 private:
  const config::Recipe& recipe_;
  fs::path folder_;
  std::int64_t first_step_ = 0;
  std::optional<metrics::JsonLines> training_;
  std::map<std::string, std::unique_ptr<metrics::JsonLines>> validation_;
  std::optional<metrics::EventFile> events_;
  std::unique_ptr<metrics::Console> console_;
};

/// One run: everything that lives from the plan to the last line.
class Run {
 public:
  Run(const config::LoadedRecipe& loaded, comm::World& world)
      : loaded_(loaded), recipe_(loaded.recipe), world_(world) {}

  ExitCode execute() {
    make_plan();
    choose_threads();
    open_data();
    make_schedules();
    runtime_ = std::make_unique<Runtime>(
        *plan_, recipe_, world_,
        initial_values(plan_->model->spec, seed(), !recipe_.model_parallel->perform_initialization()));
    trainer_ = std::make_unique<Trainer>(*runtime_, recipe_, *rates_);
    const std::int64_t first = scheduler_->first_step();
    reports_ = std::make_unique<Reports>(recipe_, world_.rank() == 0, first, scheduler_->end_step());
    banner();
    return loop(first);
  }

 private:
  std::uint64_t seed() const { return static_cast<std::uint64_t>(loaded_.seed()); }

  void make_plan() {
    auto result = plan::make_plan(
        loaded_, {.world_size = world_.size(), .training = true, .cuda_available = world_.device().is_cuda()});
    agree(world_, loaded_, result.problems);
    plan_ = std::move(result.plan);
    if (!recipe_.dataset())
      agree(world_, loaded_,
            {{"missing-key", "the recipe has no dataset", "add 'dataset:' with a _target_", {}, "dataset"}});
    // Equal plans on all ranks, or nothing would fit together later.
    const auto mine = static_cast<std::int64_t>(plan::fingerprint(*plan_) >> 1);
    auto both = at::tensor({mine, -mine}, at::TensorOptions().dtype(at::kLong));
    world_.control().all_reduce(both, comm::ReduceOp::kMax)->wait();
    if (both.const_data_ptr<std::int64_t>()[0] != mine || both.const_data_ptr<std::int64_t>()[1] != -mine)
      throw Error(ExitCode::kEnvironment, {"plans-differ",
                                           "ranks made different plans of the same recipe",
                                           "the program or the files that the recipe names differ between hosts",
                                           {},
                                           ""});
  }

  void choose_threads() {
    if (std::getenv("OMP_NUM_THREADS") == nullptr) {
      const int cores = static_cast<int>(std::thread::hardware_concurrency());
      at::set_num_threads(std::max(1, cores / std::max(1, world_.local_size())));
    }
  }

  std::shared_ptr<data::Dataset> open(const config::DatasetConfig& config, const std::string& key,
                                      Diagnostics& problems) {
    return data::open_dataset(config,
                              {.recipe_folder = fs::path(loaded_.path).parent_path(),
                               .key = key,
                               .vocab_size = plan_->model->spec.vocab,
                               .max_length = plan_->model->spec.max_positions,
                               .seed = seed()},
                              problems);
  }

  data::LoaderOptions loader_options(bool training, const std::string& key) const {
    const int dp = plan_->mesh.size(mesh::kDp);
    return {.training = training,
            .global_batch_size = plan_->batch.global,
            .local_batch_size = plan_->batch.local,
            .dp_size = dp,
            .dp_rank = plan_->mesh.position(world_.rank(), mesh::kDp),
            .seed = seed(),
            .ignore_index = std::visit([](const auto& loss) { return loss.ignore_index(); }, recipe_.loss_fn()),
            .key = key};
  }

  void open_data() {
    Diagnostics problems;
    if (auto dataset = open(*recipe_.dataset(), "dataset", problems))
      loader_ = data::Loader::make(dataset, recipe_.dataloader(), loader_options(true, "dataloader"), problems);
    const auto add_validation = [&](const std::string& name, const config::DatasetConfig& config,
                                    const std::string& key) {
      if (auto dataset = open(config, key, problems))
        if (auto loader = data::Loader::make(dataset, recipe_.validation_dataloader(),
                                             loader_options(false, "validation_dataloader"), problems))
          validation_.emplace_back(name, std::move(loader));
    };
    if (recipe_.validation_dataset()) add_validation("default", *recipe_.validation_dataset(), "validation_dataset");
    for (const auto& [name, config] : recipe_.validation_datasets())
      add_validation(name, config, "validation_dataset_" + name);
    agree(world_, loaded_, std::move(problems));
  }

  void make_schedules() {
    Diagnostics problems;
    scheduler_ = StepScheduler::make(recipe_.step_scheduler(), plan_->mesh.size(mesh::kDp),
                                     loader_->sampler().runs_per_epoch(), problems);
    const auto basics = optim::basics_of(recipe_.optimizer());
    if (scheduler_)
      rates_ = optim::make_lr_schedule(recipe_.lr_scheduler(), basics.lr, basics.weight_decay,
                                       scheduler_->total_steps(), problems);
    for (auto& problem : optim::check_overrides(basics.overrides)) problems.push_back(std::move(problem));
    agree(world_, loaded_, std::move(problems));
  }

  void banner() {
    if (world_.rank() != 0) return;
    reports_->line(plan::to_text(*plan_));
    reports_->line("data      " + loader_->dataset().summary());
    reports_->line(fmt::format("run       steps {} to {}, {} thread{} a rank, files in {}", scheduler_->first_step(),
                               scheduler_->end_step() - 1, at::get_num_threads(), at::get_num_threads() == 1 ? "" : "s",
                               fs::absolute(reports_->folder()).lexically_normal().string()));
  }

  void validate(const StepPlan& step, double lr) {
    for (const auto& [name, loader] : validation_) {
      const auto result = evaluate(*runtime_, *loader);
      reports_->validation({.step = step.step,
                            .epoch = step.epoch,
                            .timestamp = now_seconds(),
                            .val_loss = result.loss,
                            .lr = lr,
                            .num_label_tokens = result.label_tokens,
                            .mem = peak_memory()},
                           name);
    }
  }

  ExitCode loop(std::int64_t first) {
    const StopSignal signals(recipe_.step_scheduler->preemption_signal->signals);
    data::Prefetcher<std::vector<data::Batch>> batches(
        [this](std::int64_t step) {
          const auto plan = scheduler_->plan(step);
          return loader_->load(plan.epoch, plan.step_in_epoch);
        },
        first, scheduler_->end_step());
    for (std::int64_t number = first; number < scheduler_->end_step(); ++number) {
      world_.activity().begin_step(number);
      const auto begin = Clock::now();
      const auto result = trainer_->step(number, batches.next(), StopSignal::received() != 0);
      const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
      const auto step = scheduler_->plan(number, result.stop_requested);
      record(step, result, seconds);
      if (step.validate) validate(step, result.lr);
      if (result.stop_requested) {
        reports_->line(fmt::format("stopped by a signal after step {}", number));
        return ExitCode::kStopped;
      }
      if (step.last) break;
    }
    sample();
    return ExitCode::kOk;
  }

  void record(const StepPlan& step, const StepResult& result, double seconds) {
    metrics::StepRecord out{.step = step.step,
                            .epoch = step.epoch,
                            .timestamp = now_seconds(),
                            .loss = result.loss,
                            .grad_norm = result.grad_norm,
                            .lr = result.lr,
                            .mem = peak_memory()};
    out.tps = static_cast<double>(result.tokens) / seconds;
    out.tps_per_gpu = out.tps / world_.size();
    out.num_tokens_per_step = result.tokens;
    out.num_label_tokens = result.label_tokens;
    out.step_time = seconds;
    if (const auto peak = recipe_.hardware->peak_tflops()) {
      double flops = 0;  // forward of all microbatches; backward costs twice as much
      for (const auto& stage : plan_->pipeline->stages) flops += stage.flops;
      flops *= 3.0 * plan_->batch.microbatches * plan_->batch.runs * plan_->mesh.size(mesh::kDp);
      out.mfu = flops / seconds / (*peak * 1e12 * world_.size());
    }
    reports_->step(out);
  }

  /// A few lines of text from the trained model, where the recipe asks for them.
  void sample() {
    const auto& generation = recipe_.generation();
    if (!generation) return;
    const auto* text = std::get_if<config::TextDatasetConfig>(&*recipe_.dataset());
    Diagnostics problems;
    const auto tokenizer = data::open_tokenizer(text != nullptr ? text->tokenizer().value_or("bytes") : "bytes",
                                                "dataset.tokenizer", problems);
    agree(world_, loaded_, std::move(problems));
    for (const auto& prompt : generation->prompts()) {
      std::vector<std::int32_t> ids;
      tokenizer->encode(prompt, ids);
      const auto added = generate(*runtime_, ids,
                                  {.tokens = generation->max_new_tokens(),
                                   .temperature = generation->temperature(),
                                   .longest = std::max<std::int64_t>(plan_->batch.length, 1),
                                   .seed = seed(),
                                   .end = tokenizer->eos().value_or(-1)});
      reports_->line(fmt::format("--- {}{}", prompt, tokenizer->decode(added)));
    }
  }

  const config::LoadedRecipe& loaded_;
  const config::Recipe& recipe_;
  comm::World& world_;
  std::optional<plan::TrainingPlan> plan_;
  std::unique_ptr<data::Loader> loader_;
  std::vector<std::pair<std::string, std::unique_ptr<data::Loader>>> validation_;
  std::optional<StepScheduler> scheduler_;
  std::optional<optim::LrSchedule> rates_;
  std::unique_ptr<Runtime> runtime_;
  std::unique_ptr<Trainer> trainer_;
  std::unique_ptr<Reports> reports_;
};

}  // namespace

ExitCode run_training(const config::LoadedRecipe& loaded, comm::World& world) {
  return Run(loaded, world).execute();
}

}  // namespace automodel::train
