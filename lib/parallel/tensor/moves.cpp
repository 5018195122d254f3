#include "parallel/tensor/moves.h"

#include <memory>
#include <utility>

#include <ATen/ops/empty.h>

#include "base/error.h"
#include "ops/graph.h"

namespace automodel::parallel {
namespace {

/// The shares of all ranks, stacked in a new first dimension.
at::Tensor gathered(comm::Communicator& group, const at::Tensor& x) {
  auto shape = x.sizes().vec();
  shape.insert(shape.begin(), group.size());
  auto out = at::empty(shape, x.options());
  group.all_gather(out, x.contiguous())->wait();
  return out;
}

at::Tensor own(const comm::Communicator& group, const at::Tensor& x, std::int64_t dim) {
  AUTOMODEL_CHECK(x.size(dim) % group.size() == 0, "a tensor does not divide among tensor-parallel ranks");
  const auto share = x.size(dim) / group.size();
  return x.narrow(dim, group.rank() * share, share).contiguous();
}

at::Tensor sum_own_tokens(comm::Communicator& group, const at::Tensor& x) {
  AUTOMODEL_CHECK(x.size(1) % group.size() == 0, "tokens do not divide among tensor-parallel ranks");
  // The collective expects the ranks' shares to be contiguous.
  const auto in = x.unflatten(1, {group.size(), x.size(1) / group.size()}).transpose(0, 1).contiguous();
  auto out = at::empty(in.sizes().slice(1), x.options());
  group.reduce_scatter(out, in, comm::ReduceOp::kSum)->wait();
  return out;
}

class MovedBackward : public ops::Backward {
 public:
  MovedBackward(comm::Communicator& group, Move how) : group_(group), how_(how) {}
  std::vector<at::Tensor> backward(std::vector<at::Tensor> gradients, const std::vector<bool>& needed) override {
    if (!gradients[0].defined()) return {at::Tensor()};
    ops::NoGraph guard;
    AUTOMODEL_CHECK(needed[0], "ranks would disagree about a collective");
    return {move(group_, gradients[0], how_)};
  }
  const char* name() const override { return "tensor_parallel_move"; }

 private:
  comm::Communicator& group_;
  Move how_;
};

}  // namespace

at::Tensor move(comm::Communicator& group, const at::Tensor& x, Move how) {
  switch (how) {
    case Move::kNone: return x;
    case Move::kSum: {
      auto out = x.clone(at::MemoryFormat::Contiguous);
      group.all_reduce(out, comm::ReduceOp::kSum)->wait();
      return out;
    }
    case Move::kGatherTokens: return gathered(group, x).transpose(0, 1).flatten(1, 2).contiguous();
    case Move::kSumOwnTokens: return sum_own_tokens(group, x);
    case Move::kOwnTokens: return own(group, x, 1);
    case Move::kGatherFeatures: return gathered(group, x).movedim(0, -2).flatten(-2).contiguous();
    case Move::kOwnFeatures: return own(group, x, -1);
  }
  throw InternalError("unknown move");
}

at::Tensor moved(comm::Communicator& group, const at::Tensor& x, Move forward, Move backward) {
  if (group.size() == 1 || (forward == Move::kNone && backward == Move::kNone)) return x;
  at::Tensor out;
  {
    ops::NoGraph guard;
    out = move(group, x.detach(), forward);
    if (forward == Move::kNone) out = out.alias();
  }
  if (ops::records({x})) ops::record({out}, {x}, std::make_unique<MovedBackward>(group, backward));
  return out;
}

}  // namespace automodel::parallel
