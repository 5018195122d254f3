#include "schedule/lower.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "base/error.h"
#include "schedule/deadlock.h"
#include "schedule/sweep.h"

namespace automodel::schedule {
namespace {

/// The distinct stages that a row uses next, in order of their next use. Built from the end of the row: the stages of a
/// slot move to the front. Stages beyond the kept ones can only move further back, so they may be forgotten.
class NextStages {
 public:
  static constexpr std::size_t kActive = 3;

  void move_to_front(const Slot& slot, std::size_t step) {
    const auto actions = slot.actions();
    for (std::size_t i = actions.size(); i-- > 0;) move_to_front(actions[i].stage, step);
  }
  /// Stages to keep gathered: as many slots as it takes to see kActive distinct stages, with all stages of these slots.
  std::span<const Stage> active() const {
    std::size_t count = std::min(count_, kActive);
    if (count_ > kActive && used_at_[kActive - 1] == used_at_[kActive]) ++count;
    return {stages_.data(), count};
  }

 private:
  static constexpr std::size_t kKept = kActive + 1;

  void move_to_front(Stage stage, std::size_t step) {
    const auto kept = static_cast<std::ptrdiff_t>(count_);
    auto at = std::find(stages_.begin(), stages_.begin() + kept, stage) - stages_.begin();
    if (at == kept) {
      if (count_ < kKept) ++count_;
      at = static_cast<std::ptrdiff_t>(count_) - 1;
    }
    std::copy_backward(stages_.begin(), stages_.begin() + at, stages_.begin() + at + 1);
    std::copy_backward(used_at_.begin(), used_at_.begin() + at, used_at_.begin() + at + 1);
    stages_[0] = stage;
    used_at_[0] = step;
  }

  std::array<Stage, kKept> stages_ = {};
  std::array<std::size_t, kKept> used_at_ = {};
  std::size_t count_ = 0;
};

template <class List>
bool contains(const List& list, Stage stage) {
  return std::find(list.begin(), list.end(), stage) != list.end();
}

Row with_unshard_reshard(const Row& row) {
  std::vector<NextStages> next(row.size());
  NextStages seen;
  for (std::size_t step = row.size(); step-- > 0;) {
    seen.move_to_front(row[step], step);
    next[step] = seen;
  }
  Row out;
  out.reserve(row.size() + row.size() / 4 + 16);
  std::vector<Stage> gathered;
  const auto free_all_but = [&](std::span<const Stage> kept) {
    std::sort(gathered.begin(), gathered.end());
    for (const Stage stage : gathered)
      if (!contains(kept, stage)) out.emplace_back(make_action(Op::kReshard, stage));
  };
  for (std::size_t step = 0; step < row.size(); ++step) {
    if (row[step].is_bubble()) continue;
    const auto active = next[step].active();
    free_all_but(active);
    for (const Stage stage : active)
      if (!contains(gathered, stage)) out.emplace_back(make_action(Op::kUnshard, stage));
    gathered.assign(active.begin(), active.end());
    out.push_back(row[step]);
  }
  free_all_but({});
  return out;
}

class SendRecvPass {
 public:
  SendRecvPass(const Schedule& schedule, const Placement& placement, const Shape& shape)
      : schedule_(schedule),
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

  /// Emits at most one slot of the rank; false where it has to wait or is at its end.
  bool advance(std::size_t rank) {
    const Row& row = schedule_[rank];
    if (next_[rank] == row.size()) return false;
    const Slot& slot = row[next_[rank]];
    for (const Action& action : slot.actions())
      if (!is_ready(action)) return false;
    ++next_[rank];
    if (slot.is_bubble()) return true;
    out_[rank].push_back(slot);
    for (const Action& action : slot.actions()) finish(action, rank);
    return true;
  }

  /// The stage whose result `action` needs, or -1; the result is a forward for F, else an input gradient.
  int needed_stage(const Action& action) const {
    if (action.op == Op::kForward) return action.stage.value - 1;
    if (action.op != Op::kFullBackward && action.op != Op::kBackwardInput) return -1;
    return action.stage.value + 1 < shape_.stages ? action.stage.value + 1 : -1;
  }
  bool is_ready(const Action& action) const {
    const int stage = needed_stage(action);
    if (stage < 0) return true;
    const unsigned done = done_[shape_.pair({action.op, Stage{stage}, action.microbatch})];
    return (done & (action.op == Op::kForward ? kDoneForward : kDoneBackward)) != 0;
  }

  void finish(const Action& action, std::size_t rank) {
    const bool forward = action.op == Op::kForward;
    if (!forward && action.op != Op::kFullBackward && action.op != Op::kBackwardInput) return;
    done_[shape_.pair(action)] |= forward ? kDoneForward : kDoneBackward;
    const Stage to{action.stage.value + (forward ? 1 : -1)};
    if (to.value < 0 || to.value >= shape_.stages) return;
    const auto peer = static_cast<std::size_t>(placement_.rank_of(to));
    if (peer == rank) return;
    out_[rank].emplace_back(Action{forward ? Op::kSendForward : Op::kSendBackward, action.stage, action.microbatch});
    out_[peer].emplace_back(Action{forward ? Op::kRecvForward : Op::kRecvBackward, to, action.microbatch});
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
  /// The action of `peer` that makes what `action` needs; backward is spelled B or I as it stands there.
  std::string producer(const Action& action, Stage stage, std::size_t peer) const {
    Action wanted{action.op, stage, action.microbatch};
    if (action.op == Op::kForward) return to_text(wanted);
    for (const Slot& slot : schedule_[peer])
      for (const Action& candidate : slot.actions())
        if (candidate == Action{Op::kBackwardInput, stage, action.microbatch}) return to_text(candidate);
    wanted.op = Op::kFullBackward;
    return to_text(wanted);
  }

  const Schedule& schedule_;
  const Placement& placement_;
  const Shape& shape_;
  Schedule out_;
  std::vector<std::size_t> next_;
  std::vector<std::uint8_t> done_;
  Sweep sweep_;
};

}  // namespace

Schedule add_unshard_reshard(const Schedule& schedule) {
  Schedule out;
  out.reserve(schedule.size());
  for (const Row& row : schedule) out.push_back(with_unshard_reshard(row));
  return out;
}

Schedule add_reduce_grad(const Schedule& schedule, const Shape& shape) {
  std::vector<int> backwards(static_cast<std::size_t>(shape.stages), 0);
  Schedule out(schedule.size());
  for (std::size_t rank = 0; rank < schedule.size(); ++rank) {
    out[rank].reserve(schedule[rank].size() + 8);
    for (const Slot& slot : schedule[rank]) {
      out[rank].push_back(slot);
      for (const Action& action : slot.actions())
        if ((action.op == Op::kFullBackward || action.op == Op::kBackwardWeight) &&
            ++backwards[action.stage.at()] == shape.microbatches)
          out[rank].emplace_back(make_action(Op::kReduceGrad, action.stage));
    }
  }
  return out;
}

Lowered add_send_recv(const Schedule& schedule, const Placement& placement, const Shape& shape, const Origin& origin) {
  AUTOMODEL_CHECK(static_cast<int>(schedule.size()) == placement.ranks() && placement.stages() == shape.stages,
                  "the placement is not that of the table");
  return SendRecvPass(schedule, placement, shape).run(origin);
}

Lowered lower(const Schedule& schedule, const Placement& placement, const Shape& shape, const Origin& origin) {
  Lowered out = add_send_recv(add_reduce_grad(add_unshard_reshard(schedule), shape), placement, shape, origin);
  // Told again from the table that the user knows, whose steps are not shifted by the earlier passes.
  if (!out.problems.empty()) out.problems = add_send_recv(schedule, placement, shape, origin).problems;
  return out;
}

}  // namespace automodel::schedule
