// ZB1P of the zero-bubble paper (arXiv 2401.10241), interleaved: backward is split, and the weight gradients start late
// enough to fill the slots in which later ranks would wait.
#include <algorithm>

#include "schedule/orders.h"
#include "schedule/rounds.h"

namespace automodel::schedule::orders {
namespace {

constexpr int kNever = -1;  // not executed yet

Row row_of(const Request& request, int rank) {
  const int total = request.microbatches * request.stages_per_rank;
  Rounds rounds(request, rank);
  const int way_back = request.ranks - 1 - rank;
  const int warmup = std::min((request.stages_per_rank - 1) * rounds.microbatches_per_round() + way_back, total);
  Row row;
  const int slots = rank + way_back + 3 * total;
  row.reserve(static_cast<std::size_t>(slots));
  row.resize(static_cast<std::size_t>(rank));
  for (int slot = 0; slot < warmup; ++slot) row.emplace_back(rounds.forward(slot));
  if (warmup > 0) row.resize(row.size() + static_cast<std::size_t>(way_back));
  int weights = 0;
  for (int slot = 0; slot < total; ++slot) {
    if (warmup + slot < total) row.emplace_back(rounds.forward(warmup + slot));
    row.emplace_back(rounds.backward(Op::kBackwardInput, slot));
    if (slot >= rank) row.emplace_back(rounds.backward(Op::kBackwardWeight, weights++));
  }
  while (weights < total) row.emplace_back(rounds.backward(Op::kBackwardWeight, weights++));
  return row;
}

/// Advances all rows in lockstep, one slot at a time, and inserts a bubble before a forward whose input was not
/// computed in an earlier step. As in torch, dependencies of backwards are not considered.
Schedule with_bubbles(const Schedule& rows, const Shape& shape) {
  std::vector<int> done_at(shape.pairs(), kNever);
  std::vector<std::size_t> next(rows.size(), 0);
  Schedule out(rows.size());
  std::size_t left = 0;
  for (std::size_t rank = 0; rank < rows.size(); ++rank) {
    left += rows[rank].size();
    out[rank].reserve(rows[rank].size() + rows.size());
  }
  for (int now = 0; left > 0; ++now)
    for (std::size_t rank = 0; rank < rows.size(); ++rank) {
      if (next[rank] == rows[rank].size()) continue;
      const Slot& slot = rows[rank][next[rank]];
      if (!slot.is_bubble() && slot.actions()[0].op() == Op::kForward) {
        const Action& action = slot.actions()[0];
        const std::size_t pair = shape.pair(action);
        if (action.stage().value > 0) {
          const int input_at = done_at[pair - static_cast<std::size_t>(shape.microbatches)];
          if (input_at == kNever || input_at == now) {
            out[rank].emplace_back();
            continue;
          }
        }
        done_at[pair] = now;
      }
      out[rank].push_back(slot);
      ++next[rank];
      --left;
    }
  return out;
}

}  // namespace

Schedule interleaved_zero_bubble(const Request& request) {
  Schedule rows;
  rows.reserve(static_cast<std::size_t>(request.ranks));
  for (int rank = 0; rank < request.ranks; ++rank) rows.push_back(row_of(request, rank));
  return with_bubbles(rows, request.shape());
}

}  // namespace automodel::schedule::orders
