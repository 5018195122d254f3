// Every schedule ends also where each message is a meeting of both sides, one at a time on each rank: that is what NCCL
// makes of a table, since it has one stream for messages, no tags and no buffers to send ahead into.
#include <catch2/catch.hpp>

#include "schedule/generators.h"
#include "schedule/pipeline_schedule.h"

namespace automodel::schedule {
namespace {

/// The action on the other rank that `action` meets; none for a computation.
Action other_half(const Action& action) {
  const int stage = action.stage().value, microbatch = action.microbatch().value;
  switch (action.op()) {
    case Op::kSendForward: return make_action(Op::kRecvForward, stage + 1, microbatch);
    case Op::kRecvForward: return make_action(Op::kSendForward, stage - 1, microbatch);
    case Op::kSendBackward: return make_action(Op::kRecvBackward, stage - 1, microbatch);
    case Op::kRecvBackward: return make_action(Op::kSendBackward, stage + 1, microbatch);
    case Op::kForward:
    case Op::kBackwardInput:
    case Op::kBackwardWeight:
    case Op::kFullBackward:
    case Op::kUnshard:
    case Op::kReshard:
    case Op::kReduceGrad: break;
  }
  return {};
}

/// Where each rank stands when nothing can happen any more; empty where all rows ended.
std::string stuck(const Schedule& rows, const Placement& placement) {
  std::vector<std::size_t> at(rows.size(), 0);
  const auto current = [&](std::size_t rank) { return at[rank] < rows[rank].size() ? rows[rank][at[rank]] : Slot(); };
  for (bool moved = true; moved;) {
    moved = false;
    for (std::size_t rank = 0; rank < rows.size(); ++rank)
      while (at[rank] < rows[rank].size()) {
        const Slot slot = current(rank);
        const Action other = slot.is_bubble() || slot.is_overlap() ? Action() : other_half(slot.actions()[0]);
        if (!other.is_none()) {
          const auto peer = static_cast<std::size_t>(placement.rank_of(other.stage()));
          if (!(current(peer) == Slot(other))) break;
          ++at[peer];
        }
        ++at[rank];
        moved = true;
      }
  }
  std::string text;
  for (std::size_t rank = 0; rank < rows.size(); ++rank)
    if (at[rank] < rows[rank].size()) text += " rank " + std::to_string(rank) + " at " + to_text(current(rank));
  return text;
}

}  // namespace

TEST_CASE("every schedule ends where each message is a meeting", "[schedule]") {
  int tables = 0;
  for (const auto& row : generators())
    for (const int ranks : {2, 3, 4, 8})
      for (const int stages : {1, 2, 3})
        for (const int microbatches : {1, 2, 3, 4, 6, 8, 9, 16, 24}) {
          const Request request{ranks, stages, microbatches};
          if (!check_request(row, request).empty()) continue;
          const auto made = make_schedule(row, request);
          INFO(row.name << " ranks " << ranks << " stages a rank " << stages << " microbatches " << microbatches);
          CHECK(stuck(made.training, made.placement) == "");
          CHECK(stuck(made.evaluation, made.placement) == "");
          ++tables;
        }
  CHECK(tables > 300);
}

TEST_CASE("two sends that cross are no meeting", "[schedule]") {
  const auto placement = make_placement(PlacementStyle::kLoop, 2, 2);
  const auto row = [](std::initializer_list<Action> actions) {
    Row out;
    for (const Action& action : actions) out.emplace_back(action);
    return out;
  };
  const Schedule rows = {row({make_action(Op::kSendForward, 0, 1), make_action(Op::kRecvBackward, 0, 0)}),
                         row({make_action(Op::kSendBackward, 1, 0), make_action(Op::kRecvForward, 1, 1)})};
  CHECK(stuck(rows, placement) == " rank 0 at 0SEND_F1 rank 1 at 1SEND_B0");
}

}  // namespace automodel::schedule
