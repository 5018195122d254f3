#include "schedule/rounds.h"

#include <fmt/format.h>

#include "schedule/orders.h"

namespace automodel::schedule::orders {

Diagnostics check_rounds(const Request& request) {
  const auto legal = [&](int microbatches) {
    return microbatches % Rounds::rounds({request.ranks, request.stages_per_rank, microbatches}) == 0;
  };
  if (legal(request.microbatches)) return {};
  return {
      {"schedule-microbatches",
       fmt::format("{} microbatches cannot be divided into {} equal rounds", request.microbatches,
                   Rounds::rounds(request)),
       fmt::format("the microbatches must be a multiple of the rounds (microbatches / ranks, rounded down); {} work "
                   "on {} ranks",
                   nearest_legal(request.microbatches, kMaxMicrobatches, legal), request.ranks)}};
}

}  // namespace automodel::schedule::orders
