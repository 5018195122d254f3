#include "pipeline/training_runner.h"

#include <utility>

#include <ATen/ops/full.h>

#include "base/error.h"

namespace automodel::pipeline {

void TrainingRunner::begin(int microbatches) {
  AUTOMODEL_CHECK(run_ != nullptr && static_cast<int>(run_->data.size()) == microbatches &&
                      run_->data.size() == run_->options.loss_scales.size(),
                  "a run's microbatches differ from its table's");
  routers_.clear();
  stage_.begin(microbatches);
}

TrainingRunner::Pass TrainingRunner::next_pass(int microbatch, const Message& input) {
  const auto at = static_cast<std::size_t>(microbatch);
  const int number = run_->forwards++;
  Pass pass{run_->data[at], {.loss_scale = run_->options.loss_scales[at], .seed = run_->options.seed}};
  if (run_->options.recompute) pass.options.recompute = run_->options.recompute(number);
  pass.data.routers = stage_.model().statistics(pass.data, pass.options);
  if (pass.data.routers && input.side.defined()) pass.data.routers->set_before(input.side);
  pass.data.loads = stage_.model().next_loads();
  return pass;
}

Message TrainingRunner::run_forward(int microbatch, const Pass& pass, const Message& input) {
  const auto& routers = pass.data.routers;
  if (routers) routers_[microbatch] = routers;
  const auto output = stage_.forward(microbatch, pass.data, input.value, pass.options);
  if (stage_.model().modules().head) run_->losses.push_back(output);
  return {output, routers ? routers->totals() : at::Tensor()};
}

Message TrainingRunner::forward(int microbatch, const Message& input) {
  return run_forward(microbatch, next_pass(microbatch, input), input);
}

at::Tensor TrainingRunner::start_of(const Message& gradient) const {
  if (!stage_.model().modules().head) return gradient.value;
  return at::full({}, run_->options.seed, at::TensorOptions().dtype(at::kDouble).device(device_));
}

at::Tensor TrainingRunner::totals_of(int microbatch, const Message& gradient) {
  const auto routers = routers_.extract(microbatch);
  if (!routers) return {};
  if (gradient.side.defined()) routers.mapped()->set_totals(gradient.side);
  return routers.mapped()->totals();
}

Message TrainingRunner::backward(int microbatch, const Message& gradient) {
  const auto start = start_of(gradient);
  const auto totals = totals_of(microbatch, gradient);
  return {stage_.backward(microbatch, start), totals};
}

Message TrainingRunner::backward_input(int microbatch, const Message& gradient) {
  const auto start = start_of(gradient);
  const auto totals = totals_of(microbatch, gradient);
  return {stage_.backward_input(microbatch, start), totals};
}

void TrainingRunner::end() {
  AUTOMODEL_CHECK(stage_.done(), "a run ended before all its backward passes and weight gradients");
}

void CapturedRunner::begin(int microbatches) {
  TrainingRunner::begin(microbatches);
  done_.clear();
  if (sharding() != nullptr) sharding()->settle();
}

Message CapturedRunner::forward(int microbatch, const Message& input) {
  const auto pass = next_pass(microbatch, input);
  auto loss = captured_.run(microbatch, pass.data, pass.options);
  if (!loss.defined()) return run_forward(microbatch, pass, input);
  done_.insert(microbatch);
  run().losses.push_back(std::move(loss));
  return {};
}

Message CapturedRunner::backward(int microbatch, const Message& gradient) {
  return done_.contains(microbatch) ? Message{} : TrainingRunner::backward(microbatch, gradient);
}

Message CapturedRunner::backward_input(int microbatch, const Message& gradient) {
  return done_.contains(microbatch) ? Message{} : TrainingRunner::backward_input(microbatch, gradient);
}

}  // namespace automodel::pipeline
