#include "pipeline/executor.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include <ATen/TensorOperators.h>
#include <ATen/ops/full.h>

#include "base/error.h"

namespace automodel::pipeline {

using schedule::Action;
using schedule::Op;

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

namespace {

LossSum sum_of(const std::vector<at::Tensor>& losses) {
  LossSum sum;
  for (const auto& each : losses) sum.add(each);
  return sum;
}

}  // namespace

struct Executor::Run {
  const std::vector<model::Microbatch>& data;
  const RunOptions& options;
  Links& links;
  bool training;
  int forwards = 0;                      ///< forward passes so far
  std::vector<int> backwards_left = {};  ///< remaining B and W actions, by local stage
  std::vector<at::Tensor> losses = {};
  std::optional<std::int64_t> only = {};  ///< compute logits of this token instead of losses
  /// By stage and microbatch, kept from forward to backward.
  std::map<std::pair<int, int>, std::shared_ptr<model::RouterStatistics>> routers = {};
  std::set<int> captured = {};       ///< microbatches whose forward and backward ran as captured work
  std::vector<Action> delayed = {};  ///< backward passes whose weight gradients are deferred until after the next send
};

Executor::Executor(Table training, Table evaluation, int rank, comm::Communicator* group, std::vector<Stage*> stages)
    : training_(std::move(training)),
      evaluation_(std::move(evaluation)),
      rank_(rank),
      stages_(std::move(stages)),
      training_links_(group, training_.placement, training_.shape.microbatches),
      evaluation_links_(group, evaluation_.placement, evaluation_.shape.microbatches) {
  const auto& here = training_.placement.stages_of(rank_);
  AUTOMODEL_CHECK(here.size() == stages_.size(), "the executor's stages differ from its table's");
  for (std::size_t i = 0; i < here.size(); ++i) AUTOMODEL_CHECK(here[i] == stages_[i]->number(), "stages out of order");
}

void Executor::set_message(const MessageShape& shape) {
  message_ = shape;
  training_links_.set_message(shape);
  evaluation_links_.set_message(shape);
}

void Executor::capture(std::unique_ptr<ops::WorkCapture> capture) {
  AUTOMODEL_CHECK(training_.placement.stages() == 1, "microbatches of a pipeline are not captured");
  captured_ = std::make_unique<CapturedMicrobatches>(*stages_.front(), std::move(capture));
}

Stage& Executor::stage(schedule::Stage number) {
  return *stages_[static_cast<std::size_t>(training_.placement.local_index(number))];
}

void Executor::forward(const Action& action, Run& run) {
  Stage& here = stage(action.stage());
  const int microbatch = action.microbatch().value;
  const auto input = action.stage().value > 0 ? run.links.take(true, action.stage(), microbatch) : Links::Message{};
  const int number = run.forwards++;
  model::ForwardOptions options{.loss_scale = run.options.loss_scales[static_cast<std::size_t>(microbatch)],
                                .seed = run.options.seed};
  if (run.training && run.options.recompute) options.recompute = run.options.recompute(number);
  auto data = run.data[static_cast<std::size_t>(microbatch)];
  const bool last_stage = action.stage().value + 1 == training_.placement.stages();
  if (run.only) {
    if (last_stage)
      run.losses.push_back(here.model().logits(data, input.value, run.only));
    else
      run.links.put(true, action.stage(), microbatch, here.forward(microbatch, data, input.value, options));
    return;
  }
  data.routers = here.model().statistics(data, options);
  if (data.routers && input.side.defined()) data.routers->set_before(input.side);
  if (run.training) data.loads = here.model().next_loads();
  if (run.training && captured_) {
    if (auto loss = captured_->run(microbatch, data, options); loss.defined()) {
      run.captured.insert(microbatch);
      return run.losses.push_back(std::move(loss));
    }
  }
  if (data.routers && run.training) run.routers[{action.stage().value, microbatch}] = data.routers;
  const auto output = here.forward(microbatch, data, input.value, options);
  if (last_stage)
    run.losses.push_back(output);
  else
    run.links.put(true, action.stage(), microbatch, output, data.routers ? data.routers->totals() : at::Tensor());
}

void Executor::backward(const Action& action, Run& run) {
  if (run.captured.contains(action.microbatch().value)) return;  // done together with the forward pass
  Stage& here = stage(action.stage());
  const int microbatch = action.microbatch().value;
  const bool last_stage = action.stage().value + 1 == training_.placement.stages();
  const auto gradient = last_stage
                            ? Links::Message{at::full({}, run.options.seed,
                                                      at::TensorOptions().dtype(at::kDouble).device(message_.device)),
                                             {}}
                            : run.links.take(false, action.stage(), microbatch);
  at::Tensor totals;  // over all stages: known on the last one, which sends them back
  if (const auto routers = run.routers.extract({action.stage().value, microbatch})) {
    if (gradient.side.defined()) routers.mapped()->set_totals(gradient.side);
    totals = routers.mapped()->totals();
  }
  // The first stage sends no gradient, so it has nothing to gain from deferring.
  const bool apart = action.op() == Op::kFullBackward && run.options.delay_weight_gradients && action.stage().value > 0;
  const auto result = action.op() == Op::kBackwardInput || apart ? here.backward_input(microbatch, gradient.value)
                                                                 : here.backward(microbatch, gradient.value);
  if (action.stage().value > 0) run.links.put(false, action.stage(), microbatch, result, totals);
  if (apart) run.delayed.push_back(action);
}

void Executor::weight_gradients(const Action& action) {
  Stage& here = stage(action.stage());
  if (here.sharding() != nullptr) here.sharding()->weight_gradients_begin();
  here.backward_weight(action.microbatch().value);
  if (here.sharding() != nullptr) here.sharding()->weight_gradients_done();
}

void Executor::execute(const Action& action, Run& run) {
  auto* sharding = stage(action.stage()).sharding();
  if (run.training && (action.op() == Op::kFullBackward || action.op() == Op::kBackwardWeight)) {
    const auto local = static_cast<std::size_t>(training_.placement.local_index(action.stage()));
    if (--run.backwards_left[local] == 0 && run.options.last_run && sharding != nullptr) sharding->last_backward();
  }
  switch (action.op()) {
    case Op::kForward: return forward(action, run);
    case Op::kBackwardInput:
    case Op::kFullBackward: return backward(action, run);
    case Op::kBackwardWeight: return weight_gradients(action);
    case Op::kSendForward:
    case Op::kSendBackward: return run.links.send(action);
    case Op::kRecvForward:
    case Op::kRecvBackward: return run.links.receive(action);
    case Op::kUnshard:
      if (sharding != nullptr) sharding->unshard();
      return;
    case Op::kReshard:
      if (sharding != nullptr) sharding->reshard();
      return;
    case Op::kReduceGrad:
      if (sharding != nullptr && run.training) sharding->reduce(run.options.last_run);
      return;
  }
}

void Executor::walk(const schedule::Row& row, Run& run) {
  for (const auto& slot : row) {
    for (const auto& watch : watches_) watch(slot);
    for (const auto& action : slot.actions()) {
      // Deferred weight gradients are computed after the next action if that is their SEND_B, otherwise before it.
      const bool sends = action.op() == Op::kSendBackward;
      if (sends) execute(action, run);
      for (const auto& each : std::exchange(run.delayed, {})) weight_gradients(each);
      if (!sends) execute(action, run);
    }
  }
  run.links.finish();
}

int Executor::in_flight() const {
  int count = 0;
  for (const auto& slot : training_.rows[static_cast<std::size_t>(rank_)])
    for (const auto& action : slot.actions()) {
      if (action.op() == Op::kFullBackward || action.op() == Op::kBackwardInput) return count;
      count += action.op() == Op::kForward ? 1 : 0;
    }
  return count;
}

LossSum Executor::run(const std::vector<model::Microbatch>& microbatches, const RunOptions& options) {
  AUTOMODEL_CHECK(static_cast<int>(microbatches.size()) == training_.shape.microbatches &&
                      microbatches.size() == options.loss_scales.size(),
                  "a run's microbatches differ from its table's");
  c10::AutoGradMode grad(true);
  Run run{microbatches, options, training_links_, true};
  const auto& row = training_.rows[static_cast<std::size_t>(rank_)];
  run.backwards_left.assign(stages_.size(), 0);
  for (const auto& slot : row)
    for (const auto& action : slot.actions())
      if (action.op() == Op::kFullBackward || action.op() == Op::kBackwardWeight)
        ++run.backwards_left[static_cast<std::size_t>(training_.placement.local_index(action.stage()))];
  for (auto* each : stages_) {
    each->begin(training_.shape.microbatches);
    if (captured_ && each->sharding() != nullptr) each->sharding()->settle();
  }
  walk(row, run);
  return sum_of(run.losses);
}

LossSum Executor::evaluate(const std::vector<model::Microbatch>& microbatches, const std::vector<double>& loss_scales) {
  AUTOMODEL_CHECK(static_cast<int>(microbatches.size()) == evaluation_.shape.microbatches,
                  "an evaluation's microbatches differ from its table's");
  const ops::NoGraph guard;
  const RunOptions options{.loss_scales = loss_scales};
  Run run{microbatches, options, evaluation_links_, false};
  walk(evaluation_.rows[static_cast<std::size_t>(rank_)], run);
  return sum_of(run.losses);
}

at::Tensor Executor::logits(const model::Microbatch& microbatch, std::int64_t only) {
  AUTOMODEL_CHECK(message_.side == 0, "messages of generation carry nothing but hidden states");
  const ops::NoGraph guard;
  const std::vector<model::Microbatch> microbatches = {microbatch};
  const RunOptions options{.loss_scales = {1.0}};
  Run run{microbatches, options, evaluation_links_, false};
  run.only = only;
  // Microbatches are independent of each other, so a table's actions for the first one form a valid table.
  schedule::Row row;
  for (const auto& slot : evaluation_.rows[static_cast<std::size_t>(rank_)])
    for (const auto& action : slot.actions())
      if (action.microbatch().value <= 0) row.emplace_back(action);
  walk(row, run);
  return run.losses.empty() ? at::Tensor() : run.losses.front();
}

void scale_grads_by_divisor(model::Weights& weights, double divisor) {
  const ops::NoGraph guard;
  for (const auto& weight : weights.all())
    if (weight->trained && !weight->parameter.fresh && weight->parameter.grad.defined())
      weight->parameter.grad.div_(divisor);
}

}  // namespace automodel::pipeline
