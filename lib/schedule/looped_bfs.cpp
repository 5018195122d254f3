// Breadth-first pipeline parallelism (arXiv 2211.05953). Backwards run in reverse microbatch order, as in torch.
#include "schedule/orders.h"

namespace automodel::schedule::orders {

Schedule looped_bfs(const Request& request) {
  Schedule schedule(static_cast<std::size_t>(request.ranks));
  for (int rank = 0; rank < request.ranks; ++rank) {
    Row& row = schedule[static_cast<std::size_t>(rank)];
    const int turn = 2 * (request.ranks - 1 - rank);  // steps until the first gradient comes back
    const int slots = rank + turn + 2 * request.stages_per_rank * request.microbatches;
    row.reserve(static_cast<std::size_t>(slots));
    row.resize(static_cast<std::size_t>(rank));
    for (int chunk = 0; chunk < request.stages_per_rank; ++chunk)
      for (int mb = 0; mb < request.microbatches; ++mb)
        row.emplace_back(make_action(Op::kForward, rank + chunk * request.ranks, mb));
    row.resize(row.size() + static_cast<std::size_t>(turn));
    for (int chunk = request.stages_per_rank - 1; chunk >= 0; --chunk)
      for (int mb = request.microbatches - 1; mb >= 0; --mb)
        row.emplace_back(make_action(Op::kFullBackward, rank + chunk * request.ranks, mb));
  }
  return schedule;
}

}  // namespace automodel::schedule::orders
