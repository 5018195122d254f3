#include "train/step_scheduler.h"

#include <algorithm>
#include <limits>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>

namespace automodel::train {
namespace {

/// Default number of epochs if the recipe gives neither epochs nor steps, as in NeMo AutoModel.
constexpr std::int64_t kDefaultEpochs = 10;

std::int64_t ceil_div(std::int64_t a, std::int64_t b) {
  return (a + b - 1) / b;
}

/// The reader already rejects most of these; this covers sections filled in by programs, and keys without effect.
void check_bounds(const config::StepSchedulerConfig& c, Diagnostics& problems) {
  struct Bound {
    std::string_view key;
    std::optional<int> value;
    int least;
  };
  const Bound bounds[] = {{"global_batch_size", c.global_batch_size(), 1},
                          {"local_batch_size", c.local_batch_size(), 1},
                          {"num_epochs", c.num_epochs(), 1},
                          {"max_steps", c.max_steps(), 1},
                          {"ckpt_every_steps", c.ckpt_every_steps(), 1},
                          {"val_every_steps", c.val_every_steps(), 1},
                          {"log_remote_every_steps", c.log_remote_every_steps(), 1},
                          {"loss_average_window_steps", c.loss_average_window_steps(), 1},
                          {"gc_every_steps", c.gc_every_steps(), 1},
                          {"start_step", c.start_step(), 0},
                          {"start_epoch", c.start_epoch(), 0}};
  for (const auto& bound : bounds)
    if (bound.value && *bound.value < bound.least)
      problems.add("bad-value", "step_scheduler." + std::string(bound.key))
          .says("{} is {}", bound.key, *bound.value)
          .hint("must be at least {}", bound.least);
}

/// Checks that global = local * dp * runs for some `runs`, with advice on how to satisfy it.
void check_batch(const config::StepSchedulerConfig& c, int dp_size, Diagnostics& problems) {
  const std::int64_t together = std::int64_t{c.local_batch_size()} * dp_size;
  const std::int64_t global = c.global_batch_size();
  if (global % together == 0) return;
  const std::int64_t below = global / together * together;
  const std::int64_t above = below + together;
  const std::string nearest = below == 0 ? fmt::format("{}", above) : fmt::format("{} or {}", below, above);
  problems.add("indivisible", "step_scheduler.global_batch_size")
      .says("global_batch_size {} is not a multiple of local_batch_size * data-parallel size = {} * {} = {}", global,
            c.local_batch_size(), dp_size, together)
      .hint("nearest: {}; or choose local_batch_size so that the product divides {}", nearest, global);
}

}  // namespace

std::optional<StepScheduler> StepScheduler::make(const config::StepSchedulerConfig& config, int dp_size,
                                                 std::optional<std::int64_t> runs_per_epoch, Diagnostics& problems) {
  const std::size_t before = problems.size();
  check_bounds(config, problems);
  if (dp_size < 1)
    problems.add("bad-value", "step_scheduler.global_batch_size")
        .says("the data-parallel size is {}", dp_size)
        .hint("must be at least 1");
  if (problems.size() > before) return std::nullopt;
  check_batch(config, dp_size, problems);
  if (runs_per_epoch && *runs_per_epoch < 1)
    problems.add("empty-data", "dataset")
        .says("an epoch of the data has no batch")
        .hint("give more data, or drop_last: false");
  if (!runs_per_epoch && !config.max_steps())
    problems.add("missing-key", "step_scheduler.max_steps")
        .says("data without an end needs max_steps")
        .hint("set step_scheduler.max_steps");
  if (problems.size() > before) return std::nullopt;

  StepScheduler out;
  out.accumulation_runs_ = config.global_batch_size() / (config.local_batch_size() * dp_size);
  out.tail_runs_ = out.accumulation_runs_;
  if (runs_per_epoch) {
    out.steps_per_epoch_ = ceil_div(*runs_per_epoch, out.accumulation_runs_);
    const std::int64_t rest = *runs_per_epoch % out.accumulation_runs_;
    if (rest > 0) out.tail_runs_ = static_cast<int>(rest);
  }
  const std::optional<std::int64_t> max_steps = config.max_steps();
  if (config.num_epochs())
    out.num_epochs_ = *config.num_epochs();
  else
    out.num_epochs_ = max_steps && out.steps_per_epoch_ ? ceil_div(*max_steps, *out.steps_per_epoch_) : kDefaultEpochs;
  out.max_steps_ = max_steps ? *max_steps : out.num_epochs_ * *out.steps_per_epoch_;
  if (config.ckpt_every_steps())
    out.ckpt_every_steps_ = *config.ckpt_every_steps();
  else
    out.ckpt_every_steps_ = out.steps_per_epoch_.value_or(std::max<std::int64_t>(1, out.max_steps_ / 2));
  if (config.val_every_steps()) out.val_every_steps_ = std::int64_t{*config.val_every_steps()};
  out.first_step_ = config.start_step();
  out.first_epoch_ = config.start_epoch();
  out.checkpoint_every_epoch_ = config.save_checkpoint_every_epoch();
  out.validate_on_checkpoint_ = config.validate_on_checkpoint();
  return out;
}

std::int64_t StepScheduler::epochs_before(std::int64_t step) const {
  return steps_per_epoch_ ? step / *steps_per_epoch_ : 0;
}

std::int64_t StepScheduler::end_step() const {
  if (!steps_per_epoch_) return max_steps_;
  // Epochs left after the first one begins, counted from the epoch boundary at or before first_step.
  const std::int64_t left = std::max<std::int64_t>(0, num_epochs_ - first_epoch_);
  return std::min(max_steps_, (epochs_before(first_step_) + left) * *steps_per_epoch_);
}

std::int64_t StepScheduler::total_steps() const {
  return steps_per_epoch_ ? std::min(num_epochs_ * *steps_per_epoch_, max_steps_) : max_steps_;
}

StepPlan StepScheduler::plan(std::int64_t step, bool stop_requested) const {
  StepPlan out;
  out.step = step;
  out.epoch = first_epoch_ + epochs_before(step) - epochs_before(first_step_);
  out.step_in_epoch = steps_per_epoch_ ? step % *steps_per_epoch_ : step;
  out.last_of_epoch = steps_per_epoch_ && out.step_in_epoch == *steps_per_epoch_ - 1;
  out.runs = out.last_of_epoch ? tail_runs_ : accumulation_runs_;
  const bool used_up = step + 1 >= end_step();
  const bool periodic = step % ckpt_every_steps_ == ckpt_every_steps_ - 1;
  out.checkpoint = periodic || (checkpoint_every_epoch_ && out.last_of_epoch) || used_up || stop_requested;
  const bool due = val_every_steps_ && step % *val_every_steps_ == *val_every_steps_ - 1;
  out.validate = !stop_requested && (due || (validate_on_checkpoint_ && out.checkpoint));
  out.last = used_up || stop_requested;
  return out;
}

}  // namespace automodel::train
