#include "pipeline/executor.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace automodel::pipeline {

using schedule::Action;
using schedule::Op;

namespace {

/// B and W: after the last one of a stage, its gradients are complete.
bool completes_gradients(const Action& action) {
  return action.op() == Op::kFullBackward || action.op() == Op::kBackwardWeight;
}

}  // namespace

struct Executor::Run {
  ExecuteOptions options;
  std::vector<int> backwards_left;   ///< remaining B and W actions, by local stage
  std::vector<Action> delayed = {};  ///< backward passes whose weight gradients are deferred until after the next send
};

Executor::Executor(Table table, int rank, comm::Communicator* group, std::vector<StageRunner*> stages)
    : table_(std::move(table)),
      rank_(rank),
      stages_(std::move(stages)),
      links_(group, table_.placement, table_.shape.microbatches) {
  const auto& here = table_.placement.stages_of(rank_);
  AUTOMODEL_CHECK(here.size() == stages_.size(), "the executor's stages differ from its table's");
  for (std::size_t i = 0; i < here.size(); ++i) AUTOMODEL_CHECK(here[i] == stages_[i]->number(), "stages out of order");
}

StageRunner& Executor::stage(schedule::Stage number) {
  return *stages_[static_cast<std::size_t>(table_.placement.local_index(number))];
}

const schedule::Row& Executor::row() const {
  return table_.rows[static_cast<std::size_t>(rank_)];
}

void Executor::forward(const Action& action) {
  const auto number = action.stage();
  const int microbatch = action.microbatch().value;
  const auto input = is_first(number) ? Message{} : links_.take(Direction::kForward, number, microbatch);
  auto output = stage(number).forward(microbatch, input);
  if (!is_last(number)) links_.put(Direction::kForward, number, microbatch, std::move(output));
}

void Executor::backward(const Action& action, Run& run) {
  const auto number = action.stage();
  const int microbatch = action.microbatch().value;
  const auto gradient = is_last(number) ? Message{} : links_.take(Direction::kBackward, number, microbatch);
  // The first stage sends no gradient, so it has nothing to gain from deferring.
  const bool apart = action.op() == Op::kFullBackward && run.options.delay_weight_gradients && !is_first(number);
  auto result = action.op() == Op::kBackwardInput || apart ? stage(number).backward_input(microbatch, gradient)
                                                           : stage(number).backward(microbatch, gradient);
  if (!is_first(number)) links_.put(Direction::kBackward, number, microbatch, std::move(result));
  if (apart) run.delayed.push_back(action);
}

void Executor::weight_gradients(const Action& action) {
  auto& here = stage(action.stage());
  if (here.sharding() != nullptr) here.sharding()->weight_gradients_begin();
  here.weight_gradients(action.microbatch().value);
  if (here.sharding() != nullptr) here.sharding()->weight_gradients_done();
}

void Executor::note_last_backward(const Action& action, Run& run) {
  if (!completes_gradients(action)) return;
  auto& left = run.backwards_left[static_cast<std::size_t>(table_.placement.local_index(action.stage()))];
  auto* sharding = stage(action.stage()).sharding();
  if (--left == 0 && run.options.last_run && sharding != nullptr) sharding->last_backward();
}

void Executor::execute(const Action& action, Run& run) {
  note_last_backward(action, run);
  auto* sharding = stage(action.stage()).sharding();
  switch (action.op()) {
    case Op::kForward: return forward(action);
    case Op::kBackwardInput:
    case Op::kFullBackward: return backward(action, run);
    case Op::kBackwardWeight: return weight_gradients(action);
    case Op::kSendForward:
    case Op::kSendBackward: return links_.send(action);
    case Op::kRecvForward:
    case Op::kRecvBackward: return links_.receive(action);
    case Op::kUnshard:
      if (sharding != nullptr) sharding->unshard();
      return;
    case Op::kReshard:
      if (sharding != nullptr) sharding->reshard();
      return;
    case Op::kReduceGrad:
      if (sharding != nullptr) sharding->reduce(run.options.last_run);
      return;
  }
}

void Executor::run(const ExecuteOptions& options) {
  Run run{.options = options, .backwards_left = std::vector<int>(stages_.size(), 0)};
  const int microbatches = options.microbatches.value_or(table_.shape.microbatches);
  AUTOMODEL_CHECK(microbatches <= table_.shape.microbatches, "more microbatches than the table has");
  const auto left_out = [&](const Action& action) { return action.microbatch().value >= microbatches; };
  for (const auto& slot : row())
    for (const auto& action : slot.actions())
      if (completes_gradients(action) && !left_out(action))
        ++run.backwards_left[static_cast<std::size_t>(table_.placement.local_index(action.stage()))];
  for (auto* each : stages_) each->begin(microbatches);
  for (const auto& slot : row()) {
    for (const auto& watch : watches_) watch(slot);
    for (const auto& action : slot.actions()) {
      if (left_out(action)) continue;
      // Deferred weight gradients are computed after the next action if that is their SEND_B, otherwise before it.
      const bool sends = action.op() == Op::kSendBackward;
      if (sends) execute(action, run);
      for (const auto& each : std::exchange(run.delayed, {})) weight_gradients(each);
      if (!sends) execute(action, run);
    }
  }
  for (const auto& each : run.delayed) weight_gradients(each);
  links_.finish();
  for (auto* each : stages_) each->end();
}

int Executor::in_flight() const {
  int count = 0;
  for (const auto& slot : row())
    for (const auto& action : slot.actions()) {
      if (action.op() == Op::kFullBackward || action.op() == Op::kBackwardInput) return count;
      count += action.op() == Op::kForward ? 1 : 0;
    }
  return count;
}

}  // namespace automodel::pipeline
