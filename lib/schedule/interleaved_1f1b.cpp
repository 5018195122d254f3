// Interleaved 1F1B (Megatron-LM, arXiv 2104.04473) with torch's rounds and torch's idle steps.
#include <algorithm>

#include "schedule/orders.h"
#include "schedule/rounds.h"

namespace automodel::schedule::orders {

Schedule interleaved_1f1b(const Request& request) {
  Schedule schedule(static_cast<std::size_t>(request.ranks));
  const int total = request.microbatches * request.stages_per_rank;
  for (int rank = 0; rank < request.ranks; ++rank) {
    Row& row = schedule[static_cast<std::size_t>(rank)];
    Rounds rounds(request, rank);
    const int way_back = 2 * (request.ranks - 1 - rank);
    const int warmup = std::min((request.stages_per_rank - 1) * rounds.microbatches_per_round() + way_back, total);
    // From the last warm-up forward until the first gradient arrives.
    const int wait = std::max(0, request.stages() + way_back - (warmup + rank));
    const int slots = rank + wait + 2 * total + warmup;
    row.reserve(static_cast<std::size_t>(slots));
    row.resize(static_cast<std::size_t>(rank));
    for (int slot = 0; slot < warmup; ++slot) row.emplace_back(rounds.forward(slot));
    if (warmup > 0) row.resize(row.size() + static_cast<std::size_t>(wait));
    for (int slot = 0; slot < total; ++slot) {
      if (warmup + slot < total)
        row.emplace_back(rounds.forward(warmup + slot));
      else
        row.emplace_back();
      row.emplace_back(rounds.backward(Op::kFullBackward, slot));
    }
  }
  return schedule;
}

}  // namespace automodel::schedule::orders
