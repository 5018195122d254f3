#include "schedule/prove.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/error.h"
#include "schedule/deadlock.h"
#include "schedule/links.h"
#include "schedule/problem_list.h"

namespace automodel::schedule {
namespace {

bool has_backward(const Schedule& schedule) {
  for (const Row& row : schedule)
    for (const Slot& slot : row)
      for (const Action& action : slot.actions())
        if (is_compute(action.op()) && action.op() != Op::kForward) return true;
  return false;
}

/// First part: walks each row once, in order, tracking the state of each message, microbatch and stage.
class CommunicationCheck {
 public:
  CommunicationCheck(const Schedule& schedule, const Placement& placement, const Shape& shape, const Origin& origin,
                     Proof& proof)
      : schedule_(schedule),
        placement_(placement),
        shape_(shape),
        links_(placement, shape),
        problems_(origin),
        proof_(proof),
        messages_(links_.messages()),
        done_(shape.pairs(), 0),
        stages_(static_cast<std::size_t>(shape.stages)),
        sends_on_(links_.channels(), 0),
        recvs_on_(links_.channels(), 0) {}

  Diagnostics run() {
    proof_.ranks.assign(schedule_.size(), {});
    proof_.stages.assign(static_cast<std::size_t>(shape_.stages), {});
    keeps_activations_ = has_backward(schedule_);
    for (std::size_t rank = 0; rank < schedule_.size(); ++rank) {
      live_ = {};
      for (std::size_t step = 0; step < schedule_[rank].size(); ++step)
        for (const Action& action : schedule_[rank][step].actions()) visit(action, rank, step);
    }
    if (problems_.empty()) match_messages();
    if (problems_.empty()) check_stages();
    return problems_.take();
  }

 private:
  static constexpr int kNever = -1;
  enum Done : std::uint8_t { kDoneF = 1, kDoneI = 2, kDoneB = 4 };
  /// Positions of a message's SEND and RECV within its channel.
  struct Message {
    int sent = kNever;
    int received = kNever;
  };
  struct StageState {
    Live live = {};
    bool ever_gathered = false;
    bool gathered = false;
    int computed = 0;   // computations before the first UNSHARD
    int backwards = 0;  // B and W so far
    int reductions = 0;
  };

  void visit(const Action& action, std::size_t rank, std::size_t step) {
    switch (action.op()) {
      case Op::kForward:
      case Op::kFullBackward:
      case Op::kBackwardInput:
      case Op::kBackwardWeight: return compute(action, rank, step);
      case Op::kSendForward:
      case Op::kSendBackward: return send(action, rank, step);
      case Op::kRecvForward:
      case Op::kRecvBackward: return receive(action, rank, step);
      case Op::kUnshard:
      case Op::kReshard: return gather(action, rank, step);
      case Op::kReduceGrad: return reduce(action, rank, step);
    }
  }

  void send(const Action& action, std::size_t rank, std::size_t step) {
    if (!has_peer("schedule-send", action, rank, step)) return;
    const unsigned made = done_[shape_.pair(action)] & (action.op() == Op::kSendForward ? kDoneF : kDoneI | kDoneB);
    int& place = messages_[links_.message(action)].sent;
    if (made == 0)
      problems_.cell("schedule-send", rank, step, fmt::format("{} before its data is computed", to_text(action)),
                     action.op() == Op::kSendForward ? "it follows F" : "it follows B or I");
    else if (place != kNever)
      problems_.cell("schedule-send", rank, step, fmt::format("{} appears twice", to_text(action)),
                     "each message is sent once");
    place = sends_on_[static_cast<std::size_t>(links_.channel(action))]++;
  }

  void receive(const Action& action, std::size_t rank, std::size_t step) {
    if (!has_peer("schedule-recv", action, rank, step)) return;
    const bool forward = action.op() == Op::kRecvForward;
    const unsigned used = done_[shape_.pair(action)] & (forward ? kDoneF : kDoneI | kDoneB);
    int& place = messages_[links_.message(action)].received;
    if (used != 0)
      problems_.cell("schedule-recv", rank, step, fmt::format("{} after its data is used", to_text(action)),
                     forward ? "it comes before F" : "it comes before B or I");
    else if (place != kNever)
      problems_.cell("schedule-recv", rank, step, fmt::format("{} appears twice", to_text(action)),
                     "each message is received once");
    place = recvs_on_[static_cast<std::size_t>(links_.channel(action))]++;
    begin(action.stage(), rank, &Live::receive_buffers);
  }

  bool has_peer(ProblemId id, const Action& action, std::size_t rank, std::size_t step) {
    if (links_.peer(action) >= 0) return true;
    const int stage = links_.neighbour(action);
    problems_.cell(id, rank, step,
                   stage < 0 ? fmt::format("{}: there is no stage at the other end", to_text(action))
                             : fmt::format("{}: stage {} is on the same rank", to_text(action), stage),
                   "messages go between neighbouring stages on different ranks");
    return false;
  }

  void compute(const Action& action, std::size_t rank, std::size_t step) {
    StageState& stage = stages_[action.stage().at()];
    if (stage.ever_gathered && !stage.gathered)
      problems_.cell(
          "schedule-unshard", rank, step,
          fmt::format("{} while the parameters of stage {} are not gathered", to_text(action), action.stage().value),
          fmt::format("put {}UNSHARD before it", action.stage().value));
    ++stage.computed;
    if (action.op() != Op::kBackwardWeight) consume(action, rank, step);
    std::uint8_t& done = done_[shape_.pair(action)];
    switch (action.op()) {
      case Op::kForward:
        done |= kDoneF;
        if (keeps_activations_) begin(action.stage(), rank, &Live::in_flight);
        break;
      case Op::kBackwardInput:
        done |= kDoneI;
        begin(action.stage(), rank, &Live::awaiting_weight);
        break;
      case Op::kBackwardWeight: end(action.stage(), &Live::awaiting_weight); [[fallthrough]];
      case Op::kFullBackward:
        done |= kDoneB;
        end(action.stage(), &Live::in_flight);
        ++stage.backwards;
        if (stage.reductions > 0)
          problems_.cell(
              "schedule-reduce-grad", rank, step,
              fmt::format("{} after the gradients of stage {} were reduced", to_text(action), action.stage().value),
              "REDUCE_GRAD follows the last backward of its stage");
        break;
      case Op::kSendForward:
      case Op::kRecvForward:
      case Op::kSendBackward:
      case Op::kRecvBackward:
      case Op::kUnshard:
      case Op::kReshard:
      case Op::kReduceGrad: break;
    }
  }

  /// F, B and I need a neighbour's result, received earlier or computed earlier on the same rank.
  void consume(const Action& action, std::size_t rank, std::size_t step) {
    if (links_.neighbour(action) < 0) return;
    const bool forward = action.op() == Op::kForward;
    if (links_.peer(action) >= 0) {
      if (messages_[links_.message(action)].received == kNever)
        problems_.cell(
            "schedule-recv", rank, step, fmt::format("{} without having received its data", to_text(action)),
            fmt::format("put {}{}{} before it", action.stage().value,
                        traits(forward ? Op::kRecvForward : Op::kRecvBackward).spelling, action.microbatch().value));
      else
        end(action.stage(), &Live::receive_buffers);
      return;
    }
    const Stage source{links_.neighbour(action)};
    const unsigned made = done_[shape_.pair(source, action.microbatch())];
    if ((made & (forward ? kDoneF : kDoneI | kDoneB)) == 0)
      problems_.cell("schedule-order", rank, step,
                     fmt::format("{} before the {} of stage {}, which is on the same rank", to_text(action),
                                 forward ? "forward" : "backward", source.value),
                     "forwards go up the stages, backwards down");
  }

  void gather(const Action& action, std::size_t rank, std::size_t step) {
    StageState& stage = stages_[action.stage().at()];
    const bool unshard = action.op() == Op::kUnshard;
    if (stage.gathered == unshard)
      problems_.cell(
          "schedule-unshard", rank, step,
          fmt::format("{} while the parameters are {}", to_text(action), unshard ? "gathered already" : "not gathered"),
          "UNSHARD and RESHARD of a stage alternate");
    else if (unshard && !stage.ever_gathered && stage.computed > 0)
      problems_.cell("schedule-unshard", rank, step,
                     fmt::format("{} after stage {} was computed", to_text(action), action.stage().value),
                     "a stage that is gathered at all is gathered before its first action");
    stage.gathered = unshard;
    stage.ever_gathered = true;
  }

  void reduce(const Action& action, std::size_t rank, std::size_t step) {
    if (stages_[action.stage().at()].reductions++ > 0)
      problems_.cell("schedule-reduce-grad", rank, step, fmt::format("{} appears twice", to_text(action)),
                     "gradients are reduced once per step");
  }

  void begin(Stage stage, std::size_t rank, int Live::*what) {
    Live& most = proof_.ranks[rank];
    most.*what = std::max(most.*what, ++(live_.*what));
    Live& most_of_stage = proof_.stages[stage.at()];
    most_of_stage.*what = std::max(most_of_stage.*what, ++(stages_[stage.at()].live.*what));
  }
  void end(Stage stage, int Live::*what) {
    --(live_.*what);
    --(stages_[stage.at()].live.*what);
  }

  /// Checks that both ends of every message exist and have the same position in their channel.
  void match_messages() {
    if (std::all_of(messages_.begin(), messages_.end(), [](const Message& m) { return m.sent == m.received; })) return;
    for (std::size_t rank = 0; rank < schedule_.size(); ++rank)
      for (std::size_t step = 0; step < schedule_[rank].size(); ++step)
        for (const Action& action : schedule_[rank][step].actions()) {
          if (!is_transfer(action.op())) continue;
          const Message& message = messages_[links_.message(action)];
          if (message.sent == message.received) continue;
          const bool sends = link_of(action.op()).sends;
          const std::string other = to_text(links_.counterpart(action));
          if (message.sent == kNever || message.received == kNever)
            problems_.cell(sends ? ProblemId("schedule-send") : ProblemId("schedule-recv"), rank, step,
                           fmt::format("{} has no {} on rank {}", to_text(action), other, links_.peer(action)),
                           "every SEND has its RECV on the neighbour's rank, and the other way round");
          else if (sends)
            problems_.cell(
                "schedule-send-order", rank, step,
                fmt::format("{} is message {} from rank {} to rank {}, but {} is receive {} there", to_text(action),
                            message.sent, rank, links_.peer(action), other, message.received),
                "between two ranks, messages are received in the order in which they are sent");
        }
  }

  void check_stages() {
    for (int stage = 0; stage < shape_.stages; ++stage) {
      const StageState& state = stages_[static_cast<std::size_t>(stage)];
      if (state.backwards > 0 && state.reductions == 0)
        problems_.row("schedule-reduce-grad", static_cast<std::size_t>(placement_.rank_of(Stage{stage})),
                      fmt::format("the gradients of stage {} are never reduced", stage),
                      fmt::format("put {}REDUCE_GRAD after the last backward of the stage", stage));
    }
  }

  const Schedule& schedule_;
  const Placement& placement_;
  const Shape& shape_;
  Links links_;
  ProblemList problems_;
  Proof& proof_;
  std::vector<Message> messages_;
  std::vector<std::uint8_t> done_;
  std::vector<StageState> stages_;
  std::vector<int> sends_on_;
  std::vector<int> recvs_on_;
  Live live_ = {};
  bool keeps_activations_ = true;
};

/// Second part: executes the table. Each rank advances as far as it can; ranks waiting for what it did are then
/// retried.
class RendezvousRun {
 public:
  enum class Receives : std::uint8_t { kPosted, kMeetings };
  RendezvousRun(const Schedule& schedule, const Placement& placement, const Shape& shape, Receives receives)
      : schedule_(schedule),
        meetings_(receives == Receives::kMeetings),
        links_(placement, shape),
        state_(links_.messages(), 0),
        next_(schedule.size(), 0),
        waits_for_(schedule.size(), links_.messages()) {}

  /// Empty if the table terminates.
  Diagnostics run(const Origin& origin) {
    for (std::size_t rank = schedule_.size(); rank-- > 0;) runnable_.push_back(rank);
    while (!runnable_.empty()) {
      const std::size_t rank = runnable_.back();
      runnable_.pop_back();
      waits_for_[rank] = links_.messages();
      advance(rank);
    }
    for (std::size_t rank = 0; rank < schedule_.size(); ++rank)
      if (next_[rank] < schedule_[rank].size()) return {deadlock(waits(), origin)};
    return {};
  }

 private:
  enum State : std::uint8_t { kPosted = 1, kArrived = 2 };

  void advance(std::size_t rank) {
    const Row& row = schedule_[rank];
    for (std::size_t& next = next_[rank]; next < row.size(); ++next) {
      const Slot& slot = row[next];
      // Arriving at a rendezvous is visible to the other rank even if this rank blocks.
      if (meetings_) perform_transfers(slot);
      if (const Action* action = blocked_by(slot); action != nullptr) {
        waits_for_[rank] = links_.message(*action);
        return;
      }
      if (!meetings_) perform_transfers(slot);
    }
  }

  void perform_transfers(const Slot& slot) {
    for (const Action& action : slot.actions())
      if (is_transfer(action.op())) perform(action);
  }

  /// The first action of the slot that cannot run yet; null if all can.
  const Action* blocked_by(const Slot& slot) const {
    for (const Action& action : slot.actions()) {
      const bool sends = link_of(action.op()).sends, meets = meetings_ && is_transfer(action.op());
      if (!sends && !meets && (!is_compute(action.op()) || links_.peer(action) < 0)) continue;
      if ((state_[links_.message(action)] & (sends ? kPosted : kArrived)) == 0) return &action;
    }
    return nullptr;
  }

  void perform(const Action& action) {
    const std::size_t message = links_.message(action);
    const auto peer = static_cast<std::size_t>(links_.peer(action));
    state_[message] |= link_of(action.op()).sends ? kArrived : kPosted;
    if (waits_for_[peer] == message) runnable_.push_back(peer);
  }

  std::vector<std::optional<Wait>> waits() const {
    std::vector<std::optional<Wait>> out(schedule_.size());
    for (std::size_t rank = 0; rank < schedule_.size(); ++rank) {
      if (next_[rank] == schedule_[rank].size()) continue;
      const Slot& slot = schedule_[rank][next_[rank]];
      const Action* action = blocked_by(slot);
      AUTOMODEL_CHECK(action != nullptr, "a rank stopped without a reason");
      out[rank] = {next_[rank], to_text(slot), to_text(links_.counterpart(*action)),
                   static_cast<std::size_t>(links_.peer(*action))};
    }
    return out;
  }

  const Schedule& schedule_;
  bool meetings_;
  Links links_;
  std::vector<std::uint8_t> state_;     // by message
  std::vector<std::size_t> next_;       // by rank: index of its next slot
  std::vector<std::size_t> waits_for_;  // by rank: a message, or messages() if it is not waiting
  std::vector<std::size_t> runnable_;
};

}  // namespace

Proof prove(const Schedule& schedule, const Placement& placement, const Shape& shape, const Origin& origin) {
  AUTOMODEL_CHECK(static_cast<int>(schedule.size()) == placement.ranks() && placement.stages() == shape.stages,
                  "the placement is not that of the table");
  Proof proof;
  proof.problems = CommunicationCheck(schedule, placement, shape, origin, proof).run();
  if (proof.ok())
    proof.problems = RendezvousRun(schedule, placement, shape, RendezvousRun::Receives::kPosted).run(origin);
  return proof;
}

Diagnostics prove_meetings(const Schedule& schedule, const Placement& placement, const Shape& shape,
                           const Origin& origin) {
  auto problems = RendezvousRun(schedule, placement, shape, RendezvousRun::Receives::kMeetings).run(origin);
  for (auto& problem : problems) {
    problem.id = "schedule-meeting";
    problem.message = "over NCCL, where both ranks must stand at a message, " + problem.message;
    problem.help = "let one of these ranks send or receive in the other's order, or set dist_env.backend: mpi";
  }
  return problems;
}

}  // namespace automodel::schedule
