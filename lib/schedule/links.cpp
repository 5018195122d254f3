#include "schedule/links.h"

#include <algorithm>
#include <utility>

namespace automodel::schedule {

Links::Links(const Placement& placement, const Shape& shape) : shape_(shape) {
  const auto neighbour = static_cast<std::size_t>(shape.microbatches);
  for (std::size_t op = 0; op < kOps.size(); ++op) {
    offset_[op] = kOpLinks[op].gradient ? shape.pairs() : 0;
    // A SEND maps to its receiver's message. The unsigned offset may wrap around; adding it wraps back.
    if (kOpLinks[op].sends) offset_[op] += kOpLinks[op].toward > 0 ? neighbour : 0 - neighbour;
  }
  const auto rank = [&](int stage) { return placement.rank_of(Stage{stage}); };
  std::vector<std::pair<int, int>> ends;  // from rank, to rank
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
    const bool first = stage == 0;
    const bool last = stage + 1 == shape.stages;
    channels_to_[0].push_back(first ? -1 : number(rank(stage - 1), rank(stage)));
    channels_to_[1].push_back(last ? -1 : number(rank(stage + 1), rank(stage)));
    peers_[0].push_back(first || rank(stage - 1) == rank(stage) ? -1 : rank(stage - 1));
    peers_[1].push_back(-1);
    peers_[2].push_back(last || rank(stage + 1) == rank(stage) ? -1 : rank(stage + 1));
  }
}

Action Links::counterpart(const Action& transfer) const {
  const OpLink& link = link_of(transfer.op());
  const Op op = link.gradient ? (link.sends ? Op::kRecvBackward : Op::kSendBackward)
                              : (link.sends ? Op::kRecvForward : Op::kSendForward);
  return {op, Stage{neighbour(transfer)}, transfer.microbatch()};
}

}  // namespace automodel::schedule
