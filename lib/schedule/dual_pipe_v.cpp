// DualPipeV (DeepSeek-V3, arXiv 2412.19437; the V-shaped half of DualPipe). The eight phases are those of DeepSeek's
// published order, which torch uses as well.
#include <array>
#include <deque>

#include <fmt/format.h>

#include "schedule/orders.h"

namespace automodel::schedule::orders {
namespace {

class Builder {
 public:
  Builder(const Request& request, int rank) : stage_{rank, request.stages() - 1 - rank} {
    row_.reserve(6 * static_cast<std::size_t>(request.microbatches));
  }
  void forward(std::size_t chunk) { row_.emplace_back(next_forward(chunk)); }
  void full_backward(std::size_t chunk) { row_.emplace_back(next_backward(Op::kFullBackward, chunk)); }
  void input_gradient(std::size_t chunk) {
    const Action action = next_backward(Op::kBackwardInput, chunk);
    owed_.push_back(make_action(Op::kBackwardWeight, action.stage().value, action.microbatch().value));
    row_.emplace_back(action);
  }
  void backward(std::size_t chunk, bool split) { split ? input_gradient(chunk) : full_backward(chunk); }
  /// Emits the oldest outstanding weight gradient, if any.
  void weight_gradient() {
    if (owed_.empty()) return;
    row_.emplace_back(owed_.front());
    owed_.pop_front();
  }
  void overlap(std::size_t forward_chunk, std::size_t backward_chunk) {
    const Action forward = next_forward(forward_chunk);
    row_.emplace_back(Overlap{forward, next_backward(Op::kFullBackward, backward_chunk)});
  }
  Row take() { return std::move(row_); }

 private:
  Action next_forward(std::size_t chunk) { return make_action(Op::kForward, stage_[chunk], forwards_[chunk]++); }
  Action next_backward(Op op, std::size_t chunk) { return make_action(op, stage_[chunk], backwards_[chunk]++); }

  std::array<int, 2> stage_;  // 0: on the way down, 1: on the way up
  std::array<int, 2> forwards_ = {};
  std::array<int, 2> backwards_ = {};
  std::deque<Action> owed_;
  Row row_;
};

Row dual_pipe_row(const Request& request, int rank) {
  const int below = request.ranks - rank - 1;  // ranks between this one and the turn of the V
  Builder row(request, rank);
  // 1, 2: fill.
  for (int i = 0; i < 2 * below; ++i) row.forward(0);
  for (int i = 0; i < rank + 1; ++i) {
    row.forward(0);
    row.forward(1);
  }
  // 3: the first backwards, split so that their input gradients leave early.
  for (int i = 0; i < below; ++i) {
    row.input_gradient(1);
    row.weight_gradient();
    row.forward(1);
  }
  // 4: the steady state.
  for (int i = 0; i < request.microbatches - 2 * request.ranks + rank + 1; ++i) {
    if (i == 0 && below == 0) {  // the last rank's first backward needs the forward just before it
      row.forward(0);
      row.full_backward(1);
    } else {
      row.overlap(0, 1);
    }
    row.overlap(1, 0);
  }
  // 5: no forwards left for the first stage.
  for (int i = 0; i < below; ++i) {
    row.full_backward(1);
    row.overlap(1, 0);
  }
  // 6: backwards only; split from halfway on, so that the weight gradients can fill the end.
  bool split = false;
  const int half = (rank + 1) / 2;
  for (int i = 0; i < rank + 1; ++i) {
    if (i == half && rank % 2 == 1) split = true;
    row.backward(1, split);
    if (i == half && rank % 2 == 0) split = true;
    row.backward(0, split);
  }
  // 7, 8: drain.
  for (int i = 0; i < below; ++i) {
    row.weight_gradient();
    row.backward(0, split);
  }
  for (int i = 0; i < rank + 1; ++i) row.weight_gradient();
  return row.take();
}

}  // namespace

Diagnostics check_dual_pipe_v(const Request& request) {
  if (request.microbatches >= request.stages()) return {};
  return {
      {"schedule-microbatches",
       fmt::format("DualPipeV cannot run {} microbatches through {} stages", request.microbatches, request.stages()),
       fmt::format("it needs at least as many microbatches as stages: {}", request.stages())}};
}

Schedule dual_pipe_v(const Request& request) {
  Schedule schedule;
  schedule.reserve(static_cast<std::size_t>(request.ranks));
  for (int rank = 0; rank < request.ranks; ++rank) schedule.push_back(dual_pipe_row(request, rank));
  return schedule;
}

}  // namespace automodel::schedule::orders
