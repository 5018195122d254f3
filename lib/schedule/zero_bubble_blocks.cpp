// Schedules that are one building block, repeated: ZB-H1 and ZB-H2 ("Zero Bubble Pipeline Parallelism", arXiv
// 2401.10241) and V-Half and V-Min ("Pipeline Parallelism with Controllable Memory", arXiv 2405.15362). Blocks are laid
// out for F = I = W = 1 and free messages, so that a rank's steps never collide at the interval of one microbatch: 3
// with one stage per rank, 6 with two.
#include <algorithm>

#include "schedule/building_block.h"
#include "schedule/orders.h"

namespace automodel::schedule::orders {
namespace {

/// A forward starts `down` after that of the stage before, on the second half of a V `up` after it; the same for input
/// gradients, which start `turn` after the last forward has ended.
struct Delays {
  Units down = 1, up = 1, turn = 0;
};

BuildingBlock block_of(int stages, int half, const Delays& forward, const Delays& backward, Units interval) {
  const auto count = static_cast<std::size_t>(stages);
  BuildingBlock block{std::vector<Units>(count), std::vector<Units>(count), interval};
  for (int s = 1; s < stages; ++s) {
    const Units delay = s < half ? forward.down : s == half ? 1 : forward.up;
    block.forward[static_cast<std::size_t>(s)] = block.forward[static_cast<std::size_t>(s - 1)] + delay;
  }
  block.backward_input[count - 1] = block.forward[count - 1] + 1 + backward.turn;
  for (int s = stages - 2; s >= 0; --s) {
    const Units delay = s + 1 >= half ? backward.down : backward.up;
    block.backward_input[static_cast<std::size_t>(s)] = block.backward_input[static_cast<std::size_t>(s + 1)] + delay;
  }
  return block;
}

Workload workload_of(const Request& request, PlacementStyle style, Units memory) {
  Workload out = unit_workload(make_placement(style, request.ranks, request.stages()), request.microbatches);
  out.memory = memory;
  return out;
}

}  // namespace

// The memory of 1F1B: forwards leave a gap behind each step, into which I or W fits.
Schedule zb_h1(const Request& request) {
  const int ranks = request.ranks;
  const auto work = workload_of(request, PlacementStyle::kLoop, ranks);
  return to_schedule(squeeze(block_of(ranks, ranks, {.down = 2}, {.turn = 1}, 3), work), ranks);
}

// Twice that memory: enough forwards at the start to work until the first input gradient comes back.
Schedule zb_h2(const Request& request) {
  const int ranks = request.ranks;
  const auto work = workload_of(request, PlacementStyle::kLoop, 2 * Units{ranks});
  return to_schedule(squeeze(block_of(ranks, ranks, {.down = 1}, {.up = 2}, 3), work), ranks);
}

// Half of ZBV's memory: on the way down both directions take two units a stage, on the way up one.
Schedule v_half(const Request& request) {
  const int ranks = request.ranks;
  const auto work = workload_of(request, PlacementStyle::kV, Units{ranks} + 2);
  const Units turn = ranks % 2 == 0 ? 3 : 1;  // by parity, or the two directions would collide
  return to_schedule(squeeze(block_of(2 * ranks, ranks, {.down = 2}, {.down = 2, .turn = turn}, 6), work), 2 * ranks);
}

// A third of ZBV's memory: no delays at all. Input gradients start so that they meet no forward, which depends on the
// remainder of the ranks by 3. Starting forwards early helps some sizes and delays others, so the shorter order counts.
Schedule v_min(const Request& request) {
  const Units ranks = request.ranks;
  const Units memory = ranks <= 4 ? 4 : (2 * ranks + 2) / 3 + 2;
  const auto work = workload_of(request, PlacementStyle::kV, memory);
  auto block = block_of(request.stages(), request.ranks, {}, {.turn = 2 * ((2 * ranks + 1) % 3)}, 6);
  auto early = squeeze(block, work);
  block.early_forwards = false;
  auto in_turn = squeeze(block, work);
  OrderClock clock(work);
  const bool better = clock.run(early) < clock.run(in_turn);
  return to_schedule(better ? early : in_turn, request.stages());
}

}  // namespace automodel::schedule::orders
