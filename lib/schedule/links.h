// Which message an action sends or receives. A message is known by its receiver: the stage, the microbatch and whether
// it is an activation (forward) or a gradient.
#pragma once

#include <cstddef>
#include <vector>

#include "schedule/action.h"
#include "schedule/placement.h"

namespace automodel::schedule {

class Links {
 public:
  Links(const Placement& placement, const Shape& shape);

  /// For dense arrays with one element a message: activations first, then gradients.
  std::size_t messages() const { return 2 * pairs_; }
  /// The message that an action sends, receives, or, for F, I and B, consumes. For a SEND the receiving stage must
  /// exist.
  std::size_t message(const Action& action) const {
    const std::size_t pair = shape_.pair(action);
    const auto neighbour = static_cast<std::size_t>(shape_.microbatches);
    switch (action.op) {
      case Op::kSendForward: return pair + neighbour;
      case Op::kSendBackward: return pairs_ + pair - neighbour;
      case Op::kForward:
      case Op::kRecvForward: return pair;
      case Op::kFullBackward:
      case Op::kBackwardInput:
      case Op::kRecvBackward: return pairs_ + pair;
      case Op::kBackwardWeight:
      case Op::kUnshard:
      case Op::kReshard:
      case Op::kReduceGrad: break;
    }
    return messages();
  }

  /// The stage at the other end of a SEND or RECV, or the one whose result an F, I or B needs; -1 where there is none.
  int neighbour(const Action& action) const {
    switch (action.op) {
      case Op::kForward:
      case Op::kRecvForward:
      case Op::kSendBackward: return action.stage.value - 1;
      case Op::kFullBackward:
      case Op::kBackwardInput:
      case Op::kRecvBackward:
      case Op::kSendForward: return action.stage.value + 1 < shape_.stages ? action.stage.value + 1 : -1;
      case Op::kBackwardWeight:
      case Op::kUnshard:
      case Op::kReshard:
      case Op::kReduceGrad: break;
    }
    return -1;
  }
  /// The rank of that neighbour, or -1 where there is none or it is on the same rank: no message then.
  int peer(const Action& action) const {
    const int stage = neighbour(action);
    if (stage < 0) return -1;
    const int rank = placement_.rank_of(Stage{stage});
    return rank == placement_.rank_of(action.stage) ? -1 : rank;
  }
  /// The SEND of a RECV, and the RECV of a SEND.
  Action counterpart(const Action& action) const;

  /// An ordered pair of ranks between which messages go; numbered from 0 without gaps.
  int channel(const Action& transfer) const;
  std::size_t channels() const { return channels_; }

 private:
  const Placement& placement_;
  const Shape& shape_;
  std::size_t pairs_;
  std::vector<int> forward_channel_;   // of the messages to stage s from stage s-1
  std::vector<int> backward_channel_;  // of the messages to stage s from stage s+1
  std::size_t channels_ = 0;
};

}  // namespace automodel::schedule
