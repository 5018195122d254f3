#include "schedule/links.h"

#include <algorithm>
#include <utility>

namespace automodel::schedule {

Links::Links(const Placement& placement, const Shape& shape)
    : placement_(placement), shape_(shape), pairs_(shape.pairs()) {
  std::vector<std::pair<int, int>> ends;  // from rank, to rank
  const auto rank = [&](int stage) { return placement.rank_of(Stage{stage}); };
  for (int stage = 0; stage + 1 < shape.stages; ++stage) {
    ends.emplace_back(rank(stage), rank(stage + 1));
    ends.emplace_back(rank(stage + 1), rank(stage));
  }
  std::sort(ends.begin(), ends.end());
  ends.erase(std::unique(ends.begin(), ends.end()), ends.end());
  channels_ = ends.size();
  const auto number = [&](int from, int to) {
    return static_cast<int>(std::lower_bound(ends.begin(), ends.end(), std::pair(from, to)) - ends.begin());
  };
  for (int stage = 0; stage < shape.stages; ++stage) {
    forward_channel_.push_back(stage > 0 ? number(rank(stage - 1), rank(stage)) : -1);
    backward_channel_.push_back(stage + 1 < shape.stages ? number(rank(stage + 1), rank(stage)) : -1);
  }
}

Action Links::counterpart(const Action& action) const {
  const Stage stage{neighbour(action)};
  switch (action.op) {
    case Op::kSendForward: return {Op::kRecvForward, stage, action.microbatch};
    case Op::kRecvForward: return {Op::kSendForward, stage, action.microbatch};
    case Op::kSendBackward: return {Op::kRecvBackward, stage, action.microbatch};
    case Op::kRecvBackward: return {Op::kSendBackward, stage, action.microbatch};
    case Op::kForward:
    case Op::kBackwardInput:
    case Op::kFullBackward:
    case Op::kBackwardWeight:
    case Op::kUnshard:
    case Op::kReshard:
    case Op::kReduceGrad: break;
  }
  return action;
}

int Links::channel(const Action& transfer) const {
  const bool forward = transfer.op == Op::kSendForward || transfer.op == Op::kRecvForward;
  const bool sends = transfer.op == Op::kSendForward || transfer.op == Op::kSendBackward;
  const auto receiver = static_cast<std::size_t>(sends ? neighbour(transfer) : transfer.stage.value);
  return (forward ? forward_channel_ : backward_channel_)[receiver];
}

}  // namespace automodel::schedule
