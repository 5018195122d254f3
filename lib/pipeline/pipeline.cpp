#include "pipeline/pipeline.h"

#include <utility>

#include <ATen/TensorOperators.h>

#include "base/error.h"
#include "ops/graph.h"

namespace automodel::pipeline {

void LossSum::add(const at::Tensor& loss) {
  const ops::NoGraph guard;
  const auto wide = loss.detach().to(at::kDouble);
  sum_ = sum_.defined() ? sum_ + wide : wide;
}

void LossSum::add(const LossSum& other) {
  if (other.sum_.defined()) add(other.sum_);
}

double LossSum::value() const {
  return sum_.defined() ? sum_.item<double>() : 0;
}

LossSum::LossSum(const std::vector<at::Tensor>& losses) {
  for (const auto& each : losses) add(each);
}

namespace {

template <class Runner>
std::vector<StageRunner*> pointers(const std::vector<std::unique_ptr<Runner>>& runners) {
  std::vector<StageRunner*> out;
  for (const auto& each : runners) out.push_back(each.get());
  return out;
}

}  // namespace

Pipeline::Pipeline(Table training, Table evaluation, int rank, comm::Communicator* group,
                   const std::vector<Stage*>& stages, at::Device device, std::unique_ptr<ops::WorkCapture> capture) {
  AUTOMODEL_CHECK(capture == nullptr || training.placement.stages() == 1,
                  "microbatches of a pipeline are not captured");
  for (auto* stage : stages) {
    AUTOMODEL_CHECK(stage->model().modules().head == (stage->number().value + 1 == training.placement.stages()),
                    "the last stage has the head");
    if (capture != nullptr) {
      auto runner = std::make_unique<CapturedRunner>(*stage, device, std::move(capture));
      captured_ = runner.get();
      training_runners_.push_back(std::move(runner));
    } else {
      training_runners_.push_back(std::make_unique<TrainingRunner>(*stage, device));
    }
    evaluation_runners_.push_back(std::make_unique<EvaluationRunner>(*stage));
    logits_runners_.push_back(std::make_unique<LogitsRunner>(*stage));
  }
  most_microbatches_ = evaluation.shape.microbatches;
  training_ = std::make_unique<Executor>(std::move(training), rank, group, pointers(training_runners_));
  logits_ = std::make_unique<Executor>(evaluation, rank, group, pointers(logits_runners_));
  evaluation_ = std::make_unique<Executor>(std::move(evaluation), rank, group, pointers(evaluation_runners_));
}

void Pipeline::set_message(const MessageShape& shape) {
  for (auto* each : {training_.get(), evaluation_.get()}) each->set_message(shape);
  auto hidden = shape;
  hidden.side = 0;  // generation has no losses
  logits_->set_message(hidden);
}

void Pipeline::add_watch(const Watch& watch) {
  for (auto* each : {training_.get(), evaluation_.get(), logits_.get()}) each->add_watch(watch);
}

LossSum Pipeline::run(const std::vector<model::Microbatch>& microbatches, const RunOptions& options) {
  c10::AutoGradMode grad(true);
  TrainingRun run{microbatches, options};
  for (auto& each : training_runners_) each->use(run);
  training_->run({.last_run = options.last_run,
                  .microbatches = static_cast<int>(microbatches.size()),
                  .delay_weight_gradients = options.delay_weight_gradients});
  return LossSum(run.losses);
}

LossSum Pipeline::evaluate(const std::vector<model::Microbatch>& microbatches, const std::vector<double>& loss_scales) {
  const ops::NoGraph guard;
  EvaluationRunner::Run run{microbatches, loss_scales};
  for (auto& each : evaluation_runners_) each->use(run);
  evaluation_->run({.microbatches = static_cast<int>(microbatches.size())});
  return LossSum(run.losses);
}

std::vector<at::Tensor> Pipeline::head_inputs(const std::vector<model::Microbatch>& microbatches) {
  const ops::NoGraph guard;
  const std::vector<double> scales(microbatches.size(), 1.0);
  EvaluationRunner::Run run{.data = microbatches, .loss_scales = scales, .heads_apart = true};
  for (auto& each : evaluation_runners_) each->use(run);
  evaluation_->run({.microbatches = static_cast<int>(microbatches.size())});
  return std::move(run.losses);
}

at::Tensor Pipeline::logits(const model::Microbatch& microbatch, std::int64_t token) {
  const ops::NoGraph guard;
  LogitsRunner::Run run{microbatch, token};
  for (auto& each : logits_runners_) each->use(run);
  logits_->run({.microbatches = 1});
  return std::exchange(run.logits, {});
}

}  // namespace automodel::pipeline
