#include "estimate/past_runs.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/median.h"
#include "base/text_hash.h"
#include "plan/facts.h"

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
  const auto& hardware = plan.estimate->hardware;
  hash.mix(config::to_json(plan::facts_of(plan, &plan::Affects::time)));
  hash.mix(fmt::format("{} {} {} {}", plan.batch.length, hardware.name, hardware.per_node, hardware.threads));
  return fmt::format("{:016x}", hash.value());
}

Diagnostics check_measurable(const plan::TrainingPlan& plan) {
  if (!plan.model)
    return {Diagnostic{"missing-key"}
                .says("a model without sizes cannot be measured")
                .hint("give '--model.config PATH' (a config.json)")
                .of("model")};
  if (plan.model->spec.layer_input > 0 || plan.model->spec.layers_without_keys > 0)
    return {Diagnostic{"unsupported-model"}
                .says("layers of this model use what earlier ones computed, and calibration measures each layer alone")
                .hint("'--calibrate' without a recipe measures this machine by usual models")
                .of("model")};
  if (plan.cuda)
    return {Diagnostic{"no-device"}
                .says("the recipe is for GPUs, but calibration measures the CPU")
                .hint("'--device cpu' measures this machine; estimates for GPUs come from data sheets and past runs")
                .of("device")};
  return {};
}

void apply_past_runs(const Calibration& calibration, EstimatedPlan& plan) {
  if (!plan.estimate || calibration.runs.empty()) return;
  auto& estimate = *plan.estimate;
  if (!plan.cuda && calibration.machine != machine_name()) return;
  const auto* runs = calibration.find_runs(run_key(plan));
  if (runs == nullptr || runs->bytes.empty() || runs->tokens.size() != runs->seconds.size()) return;
  // Rows of unknown length: the runs' steps had other numbers of tokens than the plan assumes.
  std::vector<double> per_token;
  for (std::size_t i = 0; i < runs->tokens.size(); ++i)
    if (runs->tokens[i] > 0) per_token.push_back(runs->seconds[i] / runs->tokens[i]);
  if (per_token.empty()) return;
  estimate.past = {.runs = static_cast<int>(per_token.size()),
                   .when = runs->when,
                   .uncorrected = estimate.time.step,
                   .seconds = median(per_token) * static_cast<double>(plan.batch.tokens()),
                   .bytes = *std::max_element(runs->bytes.begin(), runs->bytes.end())};
  stretch(estimate.time, estimate.past.seconds / estimate.time.step);
}

}  // namespace automodel::estimate
