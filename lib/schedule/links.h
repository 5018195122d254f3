// Maps actions to the messages they send or receive. A message is identified by its receiver: stage, microbatch, and
// whether it is an activation (forward) or a gradient.
#pragma once

#include <array>
#include <cstddef>
#include <vector>

#include "schedule/action.h"
#include "schedule/placement.h"

namespace automodel::schedule {

/// How an op relates to a message.
struct OpLink {
  int toward = 0;         ///< the stage at the other end: 1 next, -1 previous, 0 none
  bool gradient = false;  ///< gradient rather than activation
  bool sends = false;     ///< the op sends the message; other ops receive or consume it
};
/// Indexed by Op.
inline constexpr std::array<OpLink, kOps.size()> kOpLinks = {{
    {-1, false, false},  // F consumes the previous stage's output
    {1, true, false},    // I consumes the next stage's input gradient
    {0, false, false},   // W
    {1, true, false},    // B
    {1, false, true},    // SEND_F
    {-1, false, false},  // RECV_F
    {-1, true, true},    // SEND_B
    {1, true, false},    // RECV_B
    {0, false, false},   // UNSHARD
    {0, false, false},   // RESHARD
    {0, false, false},   // REDUCE_GRAD
}};
constexpr const OpLink& link_of(Op op) {
  return kOpLinks[static_cast<std::size_t>(op)];
}

class Links {
 public:
  Links(const Placement& placement, const Shape& shape);

  /// Size of dense arrays with one element per message.
  std::size_t messages() const { return 2 * shape_.pairs(); }
  /// The message that an action sends, receives or (F, I, B) consumes. For a SEND the receiving stage must exist. Not
  /// valid for ops without a neighbour.
  std::size_t message(const Action& action) const {
    return shape_.pair(action) + offset_[static_cast<std::size_t>(action.op())];
  }
  /// The stage at the other end of a SEND or RECV, or the one whose result an F, I or B consumes; -1 if there is none.
  int neighbour(const Action& action) const {
    const int toward = link_of(action.op()).toward;
    const int stage = action.stage().value + toward;
    return toward == 0 || stage >= shape_.stages ? -1 : stage;
  }
  /// The rank of that neighbour; -1 if there is none or it is on the same rank, in which case there is no message.
  int peer(const Action& action) const {
    const int direction = link_of(action.op()).toward + 1;
    return peers_[static_cast<std::size_t>(direction)][action.stage().at()];
  }
  /// The SEND matching a RECV, and vice versa.
  Action counterpart(const Action& transfer) const;

  /// Channel of a SEND or RECV. Channels are ordered (sender, receiver) pairs of ranks, numbered contiguously from 0.
  int channel(const Action& transfer) const {
    const OpLink& link = link_of(transfer.op());
    const int receiver = transfer.stage().value + (link.sends ? link.toward : 0);
    return channels_to_[link.gradient ? 1 : 0][static_cast<std::size_t>(receiver)];
  }
  std::size_t channels() const { return channels_; }

 private:
  Shape shape_;
  std::array<std::size_t, kOps.size()> offset_ = {};
  std::array<std::vector<int>, 3> peers_;        // by direction (-1, 0, 1) + 1, then stage
  std::array<std::vector<int>, 2> channels_to_;  // activations, gradients; by receiving stage
  std::size_t channels_ = 0;
};

}  // namespace automodel::schedule
