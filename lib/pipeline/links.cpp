#include "pipeline/links.h"

#include <algorithm>

#include <ATen/ops/empty.h>

#include "base/error.h"

namespace automodel::pipeline {

using schedule::Op;

Links::Links(comm::Communicator* group, const schedule::Placement& placement, int microbatches)
    : group_(group), placement_(placement), microbatches_(microbatches) {}

int Links::tag(bool forward, int sender_stage, int microbatch) const {
  const std::int64_t unique =
      (static_cast<std::int64_t>(sender_stage) * microbatches_ + microbatch) * 2 + (forward ? 0 : 1);
  // Tags may wrap around: transfers with equal tags match in posting order, which is the same on both sides.
  return static_cast<int>(unique % (static_cast<std::int64_t>(group_->max_tag()) + 1));
}

void Links::put(bool forward, schedule::Stage stage, int microbatch, at::Tensor value, at::Tensor side) {
  const int neighbour = stage.value + (forward ? 1 : -1);
  if (neighbour < 0 || neighbour >= placement_.stages()) return;
  if (placement_.rank_of({neighbour}) == placement_.rank_of(stage))
    arriving_[{forward, neighbour, microbatch}] = {{std::move(value), std::move(side)}, nullptr};
  else
    leaving_[{forward, stage.value, microbatch}] = {std::move(value), std::move(side)};
}

void Links::send(const schedule::Action& action) {
  const bool forward = action.op() == Op::kSendForward;
  const int stage = action.stage().value, microbatch = action.microbatch().value;
  const auto found = leaving_.find({forward, stage, microbatch});
  AUTOMODEL_CHECK(found != leaving_.end(), "nothing to send for " + schedule::to_text(action));
  const int peer = placement_.rank_of({stage + (forward ? 1 : -1)});
  const auto message = std::move(found->second);
  leaving_.erase(found);
  auto tensor = message.value.to(shape_.type).contiguous();
  std::erase_if(sent_, [](const comm::WorkPtr& work) { return work->done(); });
  const int number = tag(forward, stage, microbatch);
  std::vector<comm::Transfer> parts = {{tensor, peer, number}};
  if (shape_.side > 0) parts.push_back({message.side.to(shape_.device), peer, number});
  sent_.push_back(group_->exchange(std::move(parts), {}));
}

void Links::receive(const schedule::Action& action) {
  const bool forward = action.op() == Op::kRecvForward;
  const int stage = action.stage().value, microbatch = action.microbatch().value;
  const int sender = stage + (forward ? -1 : 1);
  auto tensor = at::empty(shape_.sizes, at::TensorOptions().dtype(shape_.type).device(shape_.device));
  const int peer = placement_.rank_of({sender}), number = tag(forward, sender, microbatch);
  Message message{tensor, {}};
  std::vector<comm::Transfer> parts = {{tensor, peer, number}};
  if (shape_.side > 0) {
    message.side = at::empty({shape_.side}, at::TensorOptions().dtype(at::kDouble).device(shape_.device));
    parts.push_back({message.side, peer, number});
  }
  arriving_[{forward, stage, microbatch}] = {std::move(message), group_->exchange({}, std::move(parts))};
}

Links::Message Links::take(bool forward, schedule::Stage stage, int microbatch) {
  const auto found = arriving_.find({forward, stage.value, microbatch});
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
