#include "schedule/simulate.h"

#include <algorithm>
#include <cstddef>

#include "base/error.h"
#include "schedule/links.h"

namespace automodel::schedule {
namespace {

constexpr double kUnknown = -1;
constexpr std::size_t kNoMessage = static_cast<std::size_t>(-1);

class Simulation {
 public:
  Simulation(const Schedule& schedule, const Placement& placement, const Shape& shape, const Costs& costs)
      : schedule_(schedule),
        costs_(costs),
        links_(placement, shape),
        messages_(links_.messages()),
        gathering_(static_cast<std::size_t>(shape.stages), 0),
        gathered_at_(static_cast<std::size_t>(shape.stages), 0),
        ranks_(schedule.size()) {
    timeline_.shape = shape;
    timeline_.placement = placement;
    std::size_t slots = 0;
    for (const Row& row : schedule) slots += row.size();
    timeline_.events.reserve(slots);
    timeline_.ranks.resize(schedule.size());
  }

  Timeline run() {
    for (std::size_t rank = schedule_.size(); rank-- > 0;) runnable_.push_back(rank);
    while (!runnable_.empty()) {
      const std::size_t rank = runnable_.back();
      runnable_.pop_back();
      // The two lanes can unblock each other: a finished gather allows a computation to start, and a finished
      // computation issues the next message.
      while (advance_compute(rank) || advance_communication(rank)) continue;
    }
    for (std::size_t rank = 0; rank < schedule_.size(); ++rank)
      AUTOMODEL_CHECK(ranks_[rank].next == schedule_[rank].size() && ranks_[rank].sent == ranks_[rank].issued.size(),
                      "the table does not end; prove() refuses such a table");
    finish();
    return std::move(timeline_);
  }

 private:
  /// Times at which the receive was posted and the data arrived.
  struct Message {
    double posted = kUnknown;
    double arrived = kUnknown;
  };
  struct Issued {
    Action action = {};
    double at = 0;
  };
  struct RankState {
    std::size_t next = 0;             // position in its row
    double time = 0;                  // when the compute lane becomes free
    std::vector<Issued> issued = {};  // communication in order; the first `sent` are done
    std::size_t sent = 0;
    double communication_time = 0;  // when the communication lane becomes free
    int in_flight = 0;
    std::size_t needs = kNoMessage;  // message the compute lane waits for
    std::size_t sends = kNoMessage;  // message for whose receive the next SEND waits
  };

  /// Runs the row up to the first action that has to wait. Returns whether anything was done.
  bool advance_compute(std::size_t rank) {
    RankState& state = ranks_[rank];
    const std::size_t before = state.next;
    for (const Row& row = schedule_[rank]; state.next < row.size(); ++state.next) {
      const Slot& slot = row[state.next];
      if (slot.is_bubble()) continue;
      const Action& first = slot.actions()[0];
      if (is_compute(first.op())) {
        if (!compute(slot, rank)) break;
      } else if (is_transfer(first.op()) && !link_of(first.op()).sends) {
        messages_[links_.message(first)].posted = state.time;
        wake(links_.peer(first), links_.message(first));
      } else if (costs_.overlap_communication) {
        if (first.op() == Op::kUnshard) ++gathering_[first.stage().at()];
        state.issued.push_back({first, state.time});
      } else {
        const double end = communicate(first, state.time, rank);
        if (end == kUnknown) break;
        state.time = end;
      }
    }
    return state.next != before;
  }

  bool advance_communication(std::size_t rank) {
    RankState& state = ranks_[rank];
    const std::size_t before = state.sent;
    for (; state.sent < state.issued.size(); ++state.sent) {
      const Issued& item = state.issued[state.sent];
      const double end = communicate(item.action, std::max(item.at, state.communication_time), rank);
      if (end == kUnknown) break;
      state.communication_time = end;
      if (item.action.op() == Op::kUnshard) {
        --gathering_[item.action.stage().at()];
        gathered_at_[item.action.stage().at()] = end;
      }
    }
    return state.sent != before;
  }

  /// Returns false if the arrival time of some action's data is not known yet.
  bool compute(const Slot& slot, std::size_t rank) {
    RankState& state = ranks_[rank];
    double start = state.time;
    for (const Action& action : slot.actions()) {
      if (gathering_[action.stage().at()] > 0) return false;
      start = std::max(start, gathered_at_[action.stage().at()]);
      if (links_.peer(action) < 0) continue;
      const double arrived = messages_[links_.message(action)].arrived;
      if (arrived == kUnknown) {
        state.needs = links_.message(action);
        return false;
      }
      start = std::max(start, arrived);
    }
    for (const Action& action : slot.actions()) {
      const double end = start + duration(action);
      record(action, start, end, rank, Lane::kCompute).paired = slot.is_overlap();
      timeline_.ranks[rank].busy += end - start;
      if (action.op() == Op::kForward) ++state.in_flight;
      if (action.op() == Op::kFullBackward || action.op() == Op::kBackwardWeight) --state.in_flight;
      timeline_.ranks[rank].peak_in_flight = std::max(timeline_.ranks[rank].peak_in_flight, state.in_flight);
      start = end;
    }
    state.time = start;
    return true;
  }

  /// End time of a SEND, UNSHARD, RESHARD or REDUCE_GRAD that can start at `start`; kUnknown if the receive is not
  /// posted yet.
  double communicate(const Action& action, double start, std::size_t rank) {
    double end = start;
    if (is_transfer(action.op())) {
      const std::size_t message = links_.message(action);
      Message& times = messages_[message];
      if (times.posted == kUnknown) {
        ranks_[rank].sends = message;
        return kUnknown;
      }
      const bool forward = action.op() == Op::kSendForward;
      const EdgeCost& edge = costs_.edges[action.stage().at() - (forward ? 0 : 1)];
      start = std::max(start, times.posted);
      end = start + edge.transfer;
      times.arrived = end + edge.latency;
      wake(links_.peer(action), message);
    } else {
      end = start + duration(action);
    }
    if (end > start) {
      record(action, start, end, rank, Lane::kCommunication);
      timeline_.ranks[rank].communicating += end - start;
    }
    return end;
  }

  Event& record(const Action& action, double start, double end, std::size_t rank, Lane lane) {
    Event& event = timeline_.events.emplace_back();
    event.start = start;
    event.end = end;
    event.action = action;
    event.rank = static_cast<int>(rank);
    event.lane = lane;
    return event;
  }

  double duration(const Action& action) const {
    const StageCost& cost = costs_.stages[action.stage().at()];
    switch (action.op()) {
      case Op::kForward: return cost.forward;
      case Op::kBackwardInput: return cost.backward_input;
      case Op::kBackwardWeight: return cost.backward_weight;
      case Op::kFullBackward: return cost.full_backward;
      case Op::kUnshard: return cost.unshard;
      case Op::kReshard: return cost.reshard;
      case Op::kReduceGrad: return cost.reduce_grad;
      case Op::kSendForward:
      case Op::kRecvForward:
      case Op::kSendBackward:
      case Op::kRecvBackward: break;
    }
    return 0;
  }

  /// Retries a rank if one of its lanes waits for this message.
  void wake(int rank, std::size_t message) {
    const RankState& state = ranks_[static_cast<std::size_t>(rank)];
    if (state.needs == message || state.sends == message) runnable_.push_back(static_cast<std::size_t>(rank));
  }

  void finish() {
    double busy = 0;
    for (const Event& event : timeline_.events) timeline_.makespan = std::max(timeline_.makespan, event.end);
    for (RankTime& rank : timeline_.ranks) {
      rank.idle = timeline_.makespan - rank.busy;
      busy += rank.busy;
    }
    if (timeline_.makespan > 0)
      timeline_.bubble_fraction = 1 - busy / (timeline_.makespan * static_cast<double>(timeline_.ranks.size()));
  }

  const Schedule& schedule_;
  const Costs& costs_;
  Links links_;
  std::vector<Message> messages_;
  std::vector<int> gathering_;       // by stage: UNSHARDs issued but not done
  std::vector<double> gathered_at_;  // by stage: end of the last UNSHARD
  std::vector<RankState> ranks_;
  std::vector<std::size_t> runnable_;
  Timeline timeline_;
};

}  // namespace

Costs unit_costs(int stages) {
  Costs costs;
  costs.stages.resize(static_cast<std::size_t>(stages));
  costs.edges.resize(static_cast<std::size_t>(std::max(0, stages - 1)));
  return costs;
}

Timeline simulate(const Schedule& schedule, const Placement& placement, const Shape& shape, const Costs& costs) {
  AUTOMODEL_CHECK(costs.stages.size() == static_cast<std::size_t>(shape.stages) &&
                      costs.edges.size() + 1 == static_cast<std::size_t>(shape.stages),
                  "one cost a stage and one an edge");
  return Simulation(schedule, placement, shape, costs).run();
}

}  // namespace automodel::schedule
