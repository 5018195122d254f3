// 1F1B (PipeDream-flush, arXiv 2006.09503). The order that torch executes; the `pipeline_order` it records is off by
// one forward on the last rank and cannot be run. Torch rejects fewer microbatches than stages because its hand-written
// communication would hang. The order itself is valid for any number, so any number is allowed here.
#include <algorithm>

#include "schedule/orders.h"

namespace automodel::schedule::orders {

Schedule one_f_one_b(const Request& request) {
  Schedule schedule(static_cast<std::size_t>(request.ranks));
  for (int rank = 0; rank < request.ranks; ++rank) {
    Row& row = schedule[static_cast<std::size_t>(rank)];
    row.reserve(2 * static_cast<std::size_t>(request.microbatches));
    int forwards = 0;
    const auto forward = [&] { row.emplace_back(make_action(Op::kForward, rank, forwards++)); };
    // Enough forwards for the first microbatch to reach the last stage and return as a gradient.
    const int warmup = std::min(request.microbatches, request.ranks - rank);
    while (forwards < warmup) forward();
    for (int mb = 0; mb < request.microbatches; ++mb) {
      row.emplace_back(make_action(Op::kFullBackward, rank, mb));
      if (forwards < request.microbatches) forward();
    }
  }
  return schedule;
}

}  // namespace automodel::schedule::orders
