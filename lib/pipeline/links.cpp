#include "pipeline/links.h"

#include <algorithm>

#include <ATen/ops/empty.h>

#include "base/error.h"
#include "schedule/prove.h"

namespace automodel::pipeline {

using schedule::Op;

Links::Links(comm::Communicator* group, const schedule::Placement& placement, int microbatches)
    : group_(group), placement_(placement), microbatches_(microbatches) {}

namespace {

/// The stage that a message of `stage` in this direction goes to.
int receiver_of(Direction direction, int stage) {
  return direction == Direction::kForward ? stage + 1 : stage - 1;
}
/// The stage that a message for `stage` in this direction comes from.
int sender_to(Direction direction, int stage) {
  return direction == Direction::kForward ? stage - 1 : stage + 1;
}

}  // namespace

int Links::tag(Direction direction, int sender_stage, int microbatch) const {
  const std::int64_t unique = (static_cast<std::int64_t>(sender_stage) * microbatches_ + microbatch) * 2 +
                              (direction == Direction::kForward ? 0 : 1);
  // Tags may wrap around: transfers with equal tags match in posting order, which is the same on both sides.
  return static_cast<int>(unique % (static_cast<std::int64_t>(group_->max_tag()) + 1));
}

void Links::put(Direction direction, schedule::Stage stage, int microbatch, Message message) {
  const int neighbour = receiver_of(direction, stage.value);
  AUTOMODEL_CHECK(neighbour >= 0 && neighbour < placement_.stages(), "a message to a stage that does not exist");
  if (placement_.rank_of({neighbour}) == placement_.rank_of(stage))
    arriving_[{direction, neighbour, microbatch}] = {std::move(message), nullptr};
  else
    leaving_[{direction, stage.value, microbatch}] = std::move(message);
}

void Links::send(const schedule::Action& action) {
  const auto direction = action.op() == Op::kSendForward ? Direction::kForward : Direction::kBackward;
  const int stage = action.stage().value, microbatch = action.microbatch().value;
  const auto found = leaving_.find({direction, stage, microbatch});
  AUTOMODEL_CHECK(found != leaving_.end(), "nothing to send for " + schedule::to_text(action));
  const int peer = placement_.rank_of({receiver_of(direction, stage)});
  const auto message = std::move(found->second);
  leaving_.erase(found);
  auto tensor = message.value.to(shape_.type).contiguous();
  std::erase_if(sent_, [](const comm::WorkPtr& work) { return work->done(); });
  // The host runs many launches ahead of a GPU, and would keep a message for each of them until it sees that the
  // message has left. Here it is the GPU that waits for an earlier one; its memory is free in the order of the stream.
  if (!shape_.device.is_cpu())
    for (; sent_.size() >= schedule::kMostLeaving; sent_.erase(sent_.begin())) sent_.front()->wait();
  const int number = tag(direction, stage, microbatch);
  std::vector<comm::Transfer> parts = {{tensor, peer, number}};
  if (shape_.side > 0) parts.push_back({message.side.to(shape_.device), peer, number});
  sent_.push_back(group_->exchange(std::move(parts), {}));
}

void Links::receive(const schedule::Action& action) {
  const auto direction = action.op() == Op::kRecvForward ? Direction::kForward : Direction::kBackward;
  const int stage = action.stage().value, microbatch = action.microbatch().value;
  const int sender = sender_to(direction, stage);
  auto tensor = at::empty({shape_.rows, shape_.tokens_of(microbatch), shape_.width_behind(std::min(stage, sender))},
                          at::TensorOptions().dtype(shape_.type).device(shape_.device));
  const int peer = placement_.rank_of({sender}), number = tag(direction, sender, microbatch);
  Message message{tensor, {}};
  std::vector<comm::Transfer> parts = {{tensor, peer, number}};
  if (shape_.side > 0) {
    message.side = at::empty({shape_.side}, at::TensorOptions().dtype(at::kDouble).device(shape_.device));
    parts.push_back({message.side, peer, number});
  }
  arriving_[{direction, stage, microbatch}] = {std::move(message), group_->exchange({}, std::move(parts))};
}

Message Links::take(Direction direction, schedule::Stage stage, int microbatch) {
  const auto found = arriving_.find({direction, stage.value, microbatch});
  AUTOMODEL_CHECK(found != arriving_.end(), "a stage's data was never received");
  auto arrival = std::move(found->second);
  arriving_.erase(found);
  if (arrival.work) arrival.work->wait();
  return std::move(arrival.message);
}

void Links::finish() {
  for (auto& work : sent_) work->wait();
  sent_.clear();
  AUTOMODEL_CHECK(leaving_.empty() && arriving_.empty(), "messages were left over at the end of a schedule");
}

}  // namespace automodel::pipeline
