#include "train/trainer.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include <fmt/format.h>

#include "plan/vision_choice.h"
#include "train/loss_scale.h"
#include "train/microbatches.h"
#include "train/stop_signal.h"
#include "train/world_sums.h"

namespace automodel::train {
namespace {

/// Sums over all ranks before a step.
struct CountSums {
  LossCounts counts = {};
  double stops = 0;  ///< ranks that were asked to stop
};
/// Sums over all ranks after its backward passes.
struct StepSums {
  double loss = 0, square_norm = 0;
  double hits = 0;                           ///< of a classifier
  double cross_entropy = 0, divergence = 0;  ///< of a student
  double stops = 0;                          ///< ranks that received a signal during the step
};

/// True if training draws random numbers per token.
bool draws_numbers(const plan::TrainingPlan& plan) {
  return (plan.adapters && plan.adapters->spec.dropout > 0) || plan.execution.embedding_noise > 0;
}

[[noreturn]] void stop_for(const BadStep& bad, std::int64_t step) {
  throw Error(Diagnostic{bad.spike ? ProblemId("loss-spike") : ProblemId("non-finite")}
                  .says("step {}: {}", step, bad.reason)
                  .hint("the weights were not changed; lower the learning rate, look at the data of this step, or "
                        "leave such steps out (fault_tolerance)")
                  .exits(ExitCode::kNonFinite));
}

}  // namespace

Trainer::Trainer(Runtime& runtime, plan::LrSchedule schedule, StepHooks hooks)
    : runtime_(runtime), schedule_(schedule), hooks_(std::move(hooks)), first_step_(runtime.plan().first_step) {
  if (runtime.plan().execution.precision.loss_scaler && !hooks_.grad_scale) scaler_.emplace();
}

StepResult Trainer::gradients(std::int64_t step, const std::vector<data::Batch>& batches, bool stop) {
  auto& world = runtime_.world();
  const auto& place = runtime_.place();
  // Ranks with the same data-parallel coordinate have the same rows, so only one of them counts.
  const bool counts = place.pp == 0 && place.cp == 0 && place.tp == 0;
  const int rows = runtime_.plan().batch.microbatch;
  world.activity().begin_action("count tokens");
  CountSums totals{.counts = counts ? count_losses(batches, rows) : LossCounts{}, .stops = stop ? 1.0 : 0.0};
  sum_over_world(world, totals);
  StepResult result{.tokens = static_cast<std::int64_t>(totals.counts.tokens),
                    .label_tokens = static_cast<std::int64_t>(totals.counts.labels),
                    .stop_requested = totals.stops > 0};
  result.grad_scale = hooks_.grad_scale ? hooks_.grad_scale(step)
                      : scaler_         ? static_cast<double>(scaler_->scale())
                                        : 1.0;
  const LossScale scale(totals.counts, runtime_.plan().execution.gradients.scale_in_schedule, result.grad_scale);
  for (auto* stage : runtime_.stages()) stage->set_divisor(scale.divisor());

  runtime_.begin_step();
  pipeline::LossSum losses;
  PartSums parts(runtime_.plan());
  // One run of the pipeline takes the batches of `merged` accumulation steps; the last of an epoch may have fewer.
  const auto merged = static_cast<std::size_t>(runtime_.plan().batch.merged);
  const auto tokens = plan::picture_tokens(*runtime_.plan().model);
  for (std::size_t next = 0; next < batches.size();) {
    const auto end_of_run = std::min(next + merged, batches.size());
    std::vector<model::Microbatch> microbatches;
    std::vector<double> factors;
    std::vector<std::int64_t> lengths;
    for (; next < end_of_run; ++next) {
      const auto& batch = batches[next];
      auto part = make_microbatches(batch, rows, world.device(), place.context(), tokens ? &*tokens : nullptr,
                                    runtime_.picture_input());
      if (draws_numbers(runtime_.plan()))
        draw_dropout(part, {.seed = runtime_.plan().weights.seed,
                            .step = step,
                            .first_row = (static_cast<std::int64_t>(next) * place.dp_size + place.dp) * batch.rows,
                            .context = place.context()});
      std::ranges::move(part, std::back_inserter(microbatches));
      std::ranges::copy(scale.factors(batch, rows), std::back_inserter(factors));
      lengths.resize(microbatches.size(), batch.length);
    }
    runtime_.set_lengths(std::move(lengths));
    const pipeline::RunOptions options{
        .loss_scales = std::move(factors),
        .seed = scale.backward(),
        .last_run = next == batches.size(),
        .recompute = recompute_rule(),
        .delay_weight_gradients = runtime_.plan().execution.gradients.delay_weight_gradients};
    parts.ask(microbatches);
    runtime_.teach(microbatches);
    losses.add(runtime_.pipeline().run(microbatches, options));
    parts.take(microbatches);
  }
  const double loss = losses.value();  // the host waits for the device here, once per step
  end(StepPhase::kCompute);
  world.activity().begin_action("finish gradients");
  runtime_.finish_gradients();

  const auto [dense, expert] = runtime_.optimizer().square_sums();
  end(StepPhase::kGradients);
  StepSums sums{.loss = place.tp == 0 ? scale.loss(loss) : 0,
                .square_norm = dense + expert,
                .hits = place.tp == 0 ? parts.hits() : 0,
                .cross_entropy = place.tp == 0 ? scale.loss(parts.cross_entropy()) : 0,
                .divergence = place.tp == 0 ? scale.loss(parts.divergence()) : 0,
                .stops = StopSignal::received() != 0 ? 1.0 : 0.0};
  // One block of times per rank, to which the other ranks add zeros.
  std::vector<double> times;
  if (const auto window = clock_ ? clock_->take_window() : std::nullopt) {
    times.resize(kStepPhases * static_cast<std::size_t>(world.size()));
    std::ranges::copy(*window, times.begin() + static_cast<std::ptrdiff_t>(kStepPhases) * world.rank());
  }
  sum_over_world(world, sums, times);
  for (auto at = times.begin(); at != times.end(); at += kStepPhases)
    std::copy_n(at, kStepPhases, result.rank_seconds.emplace_back().begin());
  result.loss = sums.loss;
  if (runtime_.plan().model->spec.classes > 0) result.accuracy = sums.hits / std::max(1.0, totals.counts.labels);
  if (runtime_.plan().teacher) {
    result.ce_loss = sums.cross_entropy;
    result.kd_loss = sums.divergence;
  }
  result.grad_norm = scale.unscale(std::sqrt(sums.square_norm));
  result.stop_requested |= sums.stops > 0;
  return result;
}

StepResult Trainer::step(std::int64_t step, const std::vector<data::Batch>& batches, bool stop) {
  auto result = update(step, gradients(step, batches, stop));
  end(StepPhase::kOptimizer);
  if (clock_) clock_->end_step();
  return result;
}

StepResult Trainer::update(std::int64_t step, StepResult result) {
  // Steps skipped by float16 do not count, so that warm-up begins with the first step that updates.
  const std::int64_t update = scaler_ ? first_step_ + runtime_.optimizer().steps() : step;
  result.lr = schedule_.learning_rate(update);
  const bool overflow = !std::isfinite(result.grad_norm);
  const bool may_recover = scaler_ && !scaler_->at_least();
  const bool checks = runtime_.plan().execution.gradients.check_gradients || bad_steps_.checks_gradients();
  const bool finite = std::isfinite(result.loss) && (!overflow || may_recover || !checks);
  result.bad = bad_steps_.judge(result.loss, result.grad_norm, finite);
  if (result.bad) {
    if (!finite) name_culprit(*result.bad);
    if (result.bad->action == config::BadStepAction::kStop) stop_for(*result.bad, step);
    result.skipped = true;
    return result;
  }
  if (scaler_) scaler_->update(overflow);
  if (scaler_ && overflow) {
    result.skipped = true;
    return result;
  }
  runtime_.world().activity().begin_action("optimizer step");
  const double clip = runtime_.plan().execution.gradients.max_norm
                          ? optim::clip_factor(result.grad_norm, *runtime_.plan().execution.gradients.max_norm)
                          : 1.0;
  runtime_.optimizer().step(result.lr, schedule_.weight_decay(update), clip / result.grad_scale);
  runtime_.move_router_biases();
  runtime_.publish();
  return result;
}

/// What each forward pass leaves to be recomputed, by its number on this rank.
std::function<plan::Recompute(int)> Trainer::recompute_rule() const {
  const auto& activations = runtime_.plan().execution.activations;
  if (activations.recompute == plan::Recompute::kNone) return {};
  const int window = std::max(1, runtime_.pipeline().in_flight());
  const int whole = activations.kept_microbatches.value_or(0);
  return [=, recompute = activations.recompute](int forward) {
    return forward % window >= whole ? recompute : plan::Recompute::kNone;
  };
}

void Trainer::name_culprit(BadStep& bad) {
  const std::string name = runtime_.optimizer().not_finite();
  std::string found = name;
  for (const auto& each : runtime_.world().gather_text(name))
    if (found.empty()) found = each;
  if (!found.empty()) bad.reason += fmt::format("; first parameter whose gradient is not finite: {}", found);
}

}  // namespace automodel::train
