#include "estimate/past_runs.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/median.h"
#include "estimate/state_bytes.h"

namespace automodel::estimate {
namespace {

void stretch(TimePlan& time, double factor) {
  for (auto& stage : time.stages)
    for (double* part : {&stage.forward, &stage.backward_input, &stage.backward_weight, &stage.backward})
      *part *= factor;
  for (auto& event : time.timeline.events) {
    event.start *= factor;
    event.end *= factor;
  }
  for (auto& rank : time.timeline.ranks)
    for (double* part : {&rank.busy, &rank.idle, &rank.communicating}) *part *= factor;
  time.timeline.makespan *= factor;
  for (double* part : {&time.schedule, &time.communication, &time.optimizer, &time.step}) *part *= factor;
  time.tokens_per_second /= factor;
  time.mfu /= factor;
}

}  // namespace

std::string run_key(const EstimatedPlan& plan) {
  TextHash hash;
  plan::mix_work(hash, plan);
  const auto& estimate = *plan.estimate;
  const auto& sharding = plan.sharding;
  const auto& levers = plan.levers;
  hash.mix(fmt::format("{}", plan.batch.planned_length()));
  hash.mix(fmt::format("{} {} {} {} {} {} {} {} {}", sharding.optimizer, sharding.gradients, sharding.parameters,
                       sharding.reshard_after_forward, sharding.keep_experts, sharding.defer_reduction,
                       sharding.offloaded, sharding.sequence_parallel, sharding.prefetch()));
  hash.mix(fmt::format("{} {} {} {} {} {} {}", static_cast<int>(estimate.recompute),
                       levers.kept_microbatches.value_or(-1), levers.deferred_head.value_or(-1),
                       levers.delay_weight_gradients, levers.autocast ? name_of(*levers.autocast) : "",
                       levers.offloading ? levers.offloading->layers : 0, levers.loss_chunk.value_or(-1)));
  if (levers.float8)
    hash.mix(fmt::format("float8 {} {}", static_cast<int>(levers.float8->recipe), levers.float8->emulate));
  if (levers.quantization)
    hash.mix(fmt::format("bits {} {} {}", levers.quantization->base.bits, levers.quantization->base.small_scales,
                         name_of(levers.quantization->compute)));
  const auto moments = moments_of(plan.optimizer);
  hash.mix(fmt::format("{} {}", moments.of_matrices, moments.of_rest));
  hash.mix(plan.pipeline->name);
  for (const auto& stage : plan.pipeline->stages)
    hash.mix(fmt::format("{} {}", stage.pp_rank, stage.part.layers.size()));
  hash.mix(fmt::format("{} {} {}", estimate.hardware.name, estimate.hardware.per_node, estimate.hardware.threads));
  return fmt::format("{:016x}", hash.value());
}

Diagnostics check_measurable(const plan::TrainingPlan& plan) {
  if (!plan.model)
    return {{"missing-key",
             "a model without sizes cannot be measured",
             "give --model.config PATH (a config.json)",
             {},
             "model"}};
  if (plan.cuda)
    return {{"no-device",
             "the recipe is for GPUs, but calibration measures the CPU",
             "--device cpu measures this machine; estimates for GPUs come from data sheets and past runs",
             {},
             "device"}};
  return {};
}

void apply_past_runs(const Calibration& calibration, EstimatedPlan& plan) {
  if (!plan.estimate || calibration.runs.empty()) return;
  auto& estimate = *plan.estimate;
  if (!plan.cuda && calibration.machine != machine_name()) return;
  const auto* runs = calibration.find_runs(run_key(plan));
  if (runs == nullptr || runs->bytes.empty()) return;
  estimate.past = {.runs = static_cast<int>(runs->seconds.size()),
                   .when = runs->when,
                   .uncorrected = estimate.time.step,
                   .seconds = median(runs->seconds),
                   .bytes = *std::max_element(runs->bytes.begin(), runs->bytes.end())};
  stretch(estimate.time, estimate.past.seconds / estimate.time.step);
}

}  // namespace automodel::estimate
