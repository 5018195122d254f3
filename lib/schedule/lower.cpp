#include "schedule/lower.h"

#include <cstdint>
#include <vector>

#include "base/error.h"
#include "schedule/deadlock.h"
#include "schedule/sweep.h"

namespace automodel::schedule {
namespace {

class SendRecvPass {
 public:
  SendRecvPass(const Schedule& schedule, const Placement& placement, const Shape& shape, IdleSteps idle)
      : schedule_(schedule),
        idle_(idle),
        placement_(placement),
        shape_(shape),
        out_(schedule.size()),
        next_(schedule.size(), 0),
        done_(shape.pairs(), 0),
        sweep_(schedule.size()) {}

  Lowered run(const Origin& origin) {
    for (std::size_t rank = 0; rank < schedule_.size(); ++rank) {
      const std::size_t messages =
          4 * placement_.stages_of(static_cast<int>(rank)).size() * static_cast<std::size_t>(shape_.microbatches);
      out_[rank].reserve(schedule_[rank].size() + messages);
    }
    sweep_.run([&](std::size_t rank) { return advance(rank); });
    for (std::size_t rank = 0; rank < schedule_.size(); ++rank)
      if (next_[rank] < schedule_[rank].size()) return {{}, {deadlock(waits(), origin)}};
    return {std::move(out_), {}};
  }

 private:
  enum Done : std::uint8_t { kDoneForward = 1, kDoneBackward = 2 };

  /// Emits at most one slot of the rank; returns false if the rank has to wait or is finished.
  bool advance(std::size_t rank) {
    const Row& row = schedule_[rank];
    if (next_[rank] == row.size()) return false;
    const Slot& slot = row[next_[rank]];
    for (const Action& action : slot.actions())
      if (!is_ready(action)) return false;
    ++next_[rank];
    if (slot.is_bubble() && idle_ == IdleSteps::kDrop) return true;
    out_[rank].push_back(slot);
    for (const Action& action : slot.actions()) finish(action, rank);
    return true;
  }

  /// The stage whose result `action` consumes, or -1. For F this is an activation, else an input gradient.
  int needed_stage(const Action& action) const {
    if (action.op() == Op::kForward) return action.stage().value - 1;
    if (action.op() != Op::kFullBackward && action.op() != Op::kBackwardInput) return -1;
    return action.stage().value + 1 < shape_.stages ? action.stage().value + 1 : -1;
  }
  bool is_ready(const Action& action) const {
    const int stage = needed_stage(action);
    if (stage < 0) return true;
    const unsigned done = done_[shape_.pair(Stage{stage}, action.microbatch())];
    return (done & (action.op() == Op::kForward ? kDoneForward : kDoneBackward)) != 0;
  }

  void finish(const Action& action, std::size_t rank) {
    const bool forward = action.op() == Op::kForward;
    if (!forward && action.op() != Op::kFullBackward && action.op() != Op::kBackwardInput) return;
    done_[shape_.pair(action)] |= forward ? kDoneForward : kDoneBackward;
    const Stage to{action.stage().value + (forward ? 1 : -1)};
    if (to.value < 0 || to.value >= shape_.stages) return;
    const auto peer = static_cast<std::size_t>(placement_.rank_of(to));
    if (peer == rank) return;
    out_[rank].emplace_back(
        Action{forward ? Op::kSendForward : Op::kSendBackward, action.stage(), action.microbatch()});
    out_[peer].emplace_back(Action{forward ? Op::kRecvForward : Op::kRecvBackward, to, action.microbatch()});
    sweep_.wake(peer);
  }

  std::vector<std::optional<Wait>> waits() const {
    std::vector<std::optional<Wait>> out(schedule_.size());
    for (std::size_t rank = 0; rank < schedule_.size(); ++rank) {
      if (next_[rank] == schedule_[rank].size()) continue;
      const Slot& slot = schedule_[rank][next_[rank]];
      for (const Action& action : slot.actions())
        if (!is_ready(action)) {
          const Stage needed{needed_stage(action)};
          const auto peer = static_cast<std::size_t>(placement_.rank_of(needed));
          out[rank] = {next_[rank], to_text(slot), producer(action, needed, peer), peer};
          break;
        }
    }
    return out;
  }
  /// The action of `peer` that produces what `action` consumes; a backward is spelled B or I as in the peer's row.
  std::string producer(const Action& action, Stage stage, std::size_t peer) const {
    if (action.op() == Op::kForward) return to_text(Action(Op::kForward, stage, action.microbatch()));
    const Action split(Op::kBackwardInput, stage, action.microbatch());
    for (const Slot& slot : schedule_[peer])
      for (const Action& candidate : slot.actions())
        if (candidate == split) return to_text(split);
    return to_text(Action(Op::kFullBackward, stage, action.microbatch()));
  }

  const Schedule& schedule_;
  IdleSteps idle_;
  const Placement& placement_;
  const Shape& shape_;
  Schedule out_;
  std::vector<std::size_t> next_;
  std::vector<std::uint8_t> done_;
  Sweep sweep_;
};

}  // namespace

Row add_reduce_grad(const Row& row, const Shape& shape) {
  std::vector<int> backwards(static_cast<std::size_t>(shape.stages), 0);
  Row out;
  out.reserve(row.size() + 8);
  for (const Slot& slot : row) {
    out.push_back(slot);
    for (const Action& action : slot.actions())
      if ((action.op() == Op::kFullBackward || action.op() == Op::kBackwardWeight) &&
          ++backwards[action.stage().at()] == shape.microbatches)
        out.emplace_back(make_action(Op::kReduceGrad, action.stage()));
  }
  return out;
}

Lowered add_send_recv(const Schedule& schedule, const Placement& placement, const Shape& shape, const Origin& origin,
                      IdleSteps idle) {
  AUTOMODEL_CHECK(static_cast<int>(schedule.size()) == placement.ranks() && placement.stages() == shape.stages,
                  "the placement is not that of the table");
  return SendRecvPass(schedule, placement, shape, idle).run(origin);
}

Lowered lower(const Schedule& schedule, const Placement& placement, const Shape& shape, const Origin& origin) {
  Schedule rows;
  rows.reserve(schedule.size());
  for (const Row& row : schedule) rows.push_back(add_reduce_grad(add_unshard_reshard(row), shape));
  Lowered out = add_send_recv(rows, placement, shape, origin);
  // Run again on the user's table for its problems, so that steps are not shifted by the earlier passes.
  if (!out.problems.empty()) out.problems = add_send_recv(schedule, placement, shape, origin).problems;
  return out;
}

}  // namespace automodel::schedule
