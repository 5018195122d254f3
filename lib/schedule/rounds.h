// Shared by Interleaved1F1B and InterleavedZeroBubble: microbatches are processed in rounds of about one microbatch per
// rank. Within a round, a rank takes all its microbatches through its first stage, then through its second, and so on
// (Megatron-LM, arXiv 2104.04473; in torch's "flexible" variant a round may have more microbatches than ranks).
#pragma once

#include <algorithm>
#include <vector>

#include "schedule/generators.h"

namespace automodel::schedule::orders {

/// Generates the actions of one rank by forward slot and backward slot, each counted from 0. Slots must be requested in
/// order.
class Rounds {
 public:
  Rounds(const Request& request, int rank)
      : ranks_(request.ranks),
        stages_per_rank_(request.stages_per_rank),
        rank_(rank),
        microbatches_per_round_(request.microbatches / rounds(request)),
        next_(3 * static_cast<std::size_t>(request.stages_per_rank)) {}

  /// Number of rounds; must divide the number of microbatches.
  static int rounds(const Request& request) { return std::max(1, request.microbatches / request.ranks); }
  int microbatches_per_round() const { return microbatches_per_round_; }

  Action forward(int slot) { return numbered(Op::kForward, slot / microbatches_per_round_ % stages_per_rank_, 0); }
  /// The same with the stages in reverse order. `op` is kFullBackward, kBackwardInput or kBackwardWeight.
  Action backward(Op op, int slot) {
    const int chunk = stages_per_rank_ - 1 - slot / microbatches_per_round_ % stages_per_rank_;
    return numbered(op, chunk, op == Op::kBackwardWeight ? 2 : 1);
  }

 private:
  /// Numbers the microbatches of each stage in order, separately for each kind of action.
  Action numbered(Op op, int chunk, int kind) {
    const int index = kind * stages_per_rank_ + chunk;
    int& microbatch = next_[static_cast<std::size_t>(index)];
    return make_action(op, chunk * ranks_ + rank_, microbatch++);
  }

  int ranks_;
  int stages_per_rank_;
  int rank_;
  int microbatches_per_round_;
  std::vector<int> next_;
};

}  // namespace automodel::schedule::orders
