// ZB-V of the zero-bubble paper (arXiv 2401.10241, section 6): a rank's first stage is on the way down the V, its
// second on the way up, and W directly follows I once the pipeline is full. The order needs 2 * ranks - 1 microbatches;
// with fewer, the missing ones become idle steps, as in torch.
#include <algorithm>
#include <array>

#include "schedule/orders.h"

namespace automodel::schedule::orders {
namespace {

class Builder {
 public:
  Builder(const Request& request, int rank, int planned)
      : stage_{rank, request.stages() - 1 - rank}, microbatches_(request.microbatches) {
    const int slots = rank + 6 * planned;
    row_.reserve(static_cast<std::size_t>(slots));
    row_.resize(static_cast<std::size_t>(rank));
  }
  /// `chunk` 0 is the stage on the way down, 1 the one on the way up.
  void add(Op op, std::size_t chunk) {
    const int microbatch = done_[static_cast<std::size_t>(op)][chunk]++;
    if (microbatch < microbatches_)
      row_.emplace_back(make_action(op, stage_[chunk], microbatch));
    else
      row_.emplace_back();
  }
  int done(Op op, std::size_t chunk) const { return done_[static_cast<std::size_t>(op)][chunk]; }
  Row take() { return std::move(row_); }

 private:
  std::array<int, 2> stage_;
  int microbatches_;
  std::array<std::array<int, 2>, 3> done_ = {};  // by op (F, I, W) and chunk
  Row row_;
};

Row zbv_row(const Request& request, int rank) {
  using enum Op;
  const int planned = std::max(2 * request.ranks - 1, request.microbatches);
  const int below = request.ranks - rank;  // ranks from this one (inclusive) to the turn of the V
  Builder row(request, rank, planned);
  // Fill.
  for (int i = 0; i < 2 * below - 1; ++i) row.add(kForward, 0);
  for (int i = 0; i < rank; ++i) {
    row.add(kForward, 1);
    row.add(kForward, 0);
  }
  for (int i = 0; i < below; ++i)
    for (const Op op : {kForward, kBackwardInput, kBackwardWeight}) row.add(op, 1);
  // Steady: one of everything on both stages.
  while (row.done(kForward, 1) < row.done(kForward, 0) || row.done(kForward, 0) < planned) {
    if (row.done(kForward, 0) < planned) row.add(kForward, 0);
    row.add(kBackwardInput, 0);
    row.add(kBackwardWeight, 0);
    for (const Op op : {kForward, kBackwardInput, kBackwardWeight}) row.add(op, 1);
  }
  // Drain: other ranks wait for the input gradients, so the weight gradients come last.
  for (int i = 0; i < rank; ++i) {
    row.add(kBackwardInput, 0);
    row.add(kBackwardInput, 1);
  }
  for (int i = 0; i < below; ++i) {
    row.add(kBackwardInput, 0);
    row.add(kBackwardWeight, 0);
  }
  while (row.done(kBackwardWeight, 1) < row.done(kBackwardInput, 1)) row.add(kBackwardWeight, 1);
  while (row.done(kBackwardWeight, 0) < row.done(kBackwardInput, 0)) row.add(kBackwardWeight, 0);
  return row.take();
}

}  // namespace

Schedule zbv_zero_bubble(const Request& request) {
  Schedule schedule;
  schedule.reserve(static_cast<std::size_t>(request.ranks));
  for (int rank = 0; rank < request.ranks; ++rank) schedule.push_back(zbv_row(request, rank));
  return schedule;
}

}  // namespace automodel::schedule::orders
