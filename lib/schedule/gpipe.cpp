// GPipe (arXiv 1811.06965). The order that torch executes, which differs from the one it displays: that has idle steps.
#include "schedule/orders.h"

namespace automodel::schedule::orders {

Schedule gpipe(const Request& request) {
  Schedule schedule(static_cast<std::size_t>(request.ranks));
  for (int rank = 0; rank < request.ranks; ++rank) {
    Row& row = schedule[static_cast<std::size_t>(rank)];
    row.reserve(2 * static_cast<std::size_t>(request.microbatches));
    for (int mb = 0; mb < request.microbatches; ++mb) row.emplace_back(make_action(Op::kForward, rank, mb));
    for (int mb = 0; mb < request.microbatches; ++mb) row.emplace_back(make_action(Op::kFullBackward, rank, mb));
  }
  return schedule;
}

}  // namespace automodel::schedule::orders
