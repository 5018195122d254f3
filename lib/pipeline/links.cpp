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
  // Where tags run out, equal ones match in the order of posting, which is the same on both sides.
  return static_cast<int>(unique % (static_cast<std::int64_t>(group_->max_tag()) + 1));
}

void Links::put(bool forward, schedule::Stage stage, int microbatch, at::Tensor value) {
  const int neighbour = stage.value + (forward ? 1 : -1);
  if (neighbour < 0 || neighbour >= placement_.stages()) return;
  if (placement_.rank_of({neighbour}) == placement_.rank_of(stage))
    arriving_[{forward, neighbour, microbatch}] = {std::move(value), nullptr};
  else
    leaving_[{forward, stage.value, microbatch}] = std::move(value);
}

void Links::send(const schedule::Action& action) {
  const bool forward = action.op() == Op::kSendForward;
  const int stage = action.stage().value, microbatch = action.microbatch().value;
  const auto found = leaving_.find({forward, stage, microbatch});
  AUTOMODEL_CHECK(found != leaving_.end(), "nothing to send for " + schedule::to_text(action));
  const int peer = placement_.rank_of({stage + (forward ? 1 : -1)});
  auto tensor = found->second.to(shape_.type).contiguous();
  leaving_.erase(found);
  std::erase_if(sent_, [](const comm::WorkPtr& work) { return work->done(); });
  sent_.push_back(group_->exchange({{tensor, peer, tag(forward, stage, microbatch)}}, {}));
}

void Links::receive(const schedule::Action& action) {
  const bool forward = action.op() == Op::kRecvForward;
  const int stage = action.stage().value, microbatch = action.microbatch().value;
  const int sender = stage + (forward ? -1 : 1);
  auto tensor = at::empty(shape_.sizes, at::TensorOptions().dtype(shape_.type).device(shape_.device));
  auto work = group_->exchange({}, {{tensor, placement_.rank_of({sender}), tag(forward, sender, microbatch)}});
  arriving_[{forward, stage, microbatch}] = {std::move(tensor), std::move(work)};
}

at::Tensor Links::take(bool forward, schedule::Stage stage, int microbatch) {
  const auto found = arriving_.find({forward, stage.value, microbatch});
  AUTOMODEL_CHECK(found != arriving_.end(), "a stage's data was never received");
  auto arrival = std::move(found->second);
  arriving_.erase(found);
  if (arrival.work) arrival.work->wait();
  return arrival.tensor;
}

void Links::finish() {
  for (auto& work : sent_) work->wait();
  sent_.clear();
  AUTOMODEL_CHECK(leaving_.empty() && arriving_.empty(), "messages were left over at the end of a schedule");
}

}  // namespace automodel::pipeline
