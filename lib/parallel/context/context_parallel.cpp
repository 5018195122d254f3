#include "parallel/context/context_parallel.h"

#include <algorithm>
#include <memory>
#include <vector>

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include "base/error.h"
#include "ops/graph.h"
#include "parallel/context/head_exchange.h"
#include "parallel/context/layout.h"

namespace automodel::parallel {
namespace {

/// Of the last `each` tokens of every chunk, `ends` [batch, chunks * each, width], those before half `half` of this
/// rank, at most `count`: several chunks' where chunks are shorter.
at::Tensor before(const comm::Communicator& group, const at::Tensor& ends, std::int64_t half, std::int64_t count) {
  const std::int64_t chunks = 2 * group.size(), each = ends.size(1) / chunks;
  const auto end = each * (half == 0 ? group.rank() : chunks - 1 - group.rank());
  return ends.narrow(1, end - std::min(count, end), std::min(count, end));
}

/// Of before(): the gradients of tokens return to their ranks, summed.
class BeforeBackward : public ops::Backward {
 public:
  BeforeBackward(comm::Communicator& group, std::int64_t each) : group_(group), each_(each) {}
  std::vector<at::Tensor> backward(std::vector<at::Tensor> gradients, const std::vector<bool>&) override {
    AUTOMODEL_CHECK(gradients[0].defined(), "ranks would disagree about an exchange");
    const ops::NoGraph guard;
    const auto& in = gradients[0];  // [batch, 2, count, width]
    const auto ends = at::zeros({in.size(0), 2 * group_.size() * each_, in.size(3)}, in.options());
    for (std::int64_t half = 0; half < 2; ++half) {
      const auto to = before(group_, ends, half, in.size(2));
      to.add_(in.select(1, half).narrow(1, in.size(2) - to.size(1), to.size(1)));
    }
    group_.all_reduce(ends, comm::ReduceOp::kSum)->wait();
    return {own_tokens(ends, {.size = group_.size(), .rank = group_.rank()})};
  }
  const char* name() const override { return "earlier_tokens"; }

 private:
  comm::Communicator& group_;
  std::int64_t each_;
};

}  // namespace

at::Tensor ContextParallel::attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                      const ops::AttentionOptions& options) {
  auto& heads = *groups_.heads;
  auto here = options;
  here.first_sink += heads.rank() * (q.size(2) / heads.size());
  const auto exchanged = [&](const at::Tensor& x) { return parallel::heads_for_tokens(heads, x); };
  const auto query = exchanged(q), key = exchanged(k), value = exchanged(v);
  // With a keys group of one rank, the two chunks together are the whole sequence in order.
  const auto out = groups_.keys->size() == 1
                       ? ops::attention(query, key, value, here)
                       : ring_attention(*groups_.keys, query, key, value, here, groups_.transport);
  return parallel::tokens_for_heads(heads, out);
}

// The chunks of all ranks together are the whole sequence in order, as for one keys group.
at::Tensor ContextParallel::heads_for_tokens(const at::Tensor& x) {
  return parallel::heads_for_tokens(*groups_.all, x);
}

at::Tensor ContextParallel::tokens_for_heads(const at::Tensor& x) {
  return parallel::tokens_for_heads(*groups_.all, x);
}

at::Tensor ContextParallel::with_earlier(const at::Tensor& x, std::int64_t count) {
  const auto chunk = x.size(1) / 2, each = std::min(count, chunk);
  const auto halves = x.unflatten(1, {2, chunk});
  const auto own = halves.narrow(2, chunk - each, each).flatten(1, 2);
  at::Tensor earlier;
  {
    const ops::NoGraph guard;
    const auto ends = all_tokens(own.detach());
    earlier = at::zeros({x.size(0), 2, count, x.size(2)}, x.options());
    for (std::int64_t half = 0; half < 2; ++half) {
      const auto from = before(*groups_.all, ends, half, count);
      earlier.select(1, half).narrow(1, count - from.size(1), from.size(1)).copy_(from);
    }
  }
  if (ops::records({own})) ops::record({earlier}, {own}, std::make_unique<BeforeBackward>(*groups_.all, each));
  return at::cat({earlier, halves}, 2);
}

at::Tensor ContextParallel::all_tokens(const at::Tensor& x) {
  const ops::NoGraph guard;
  const auto ranks = groups_.all->size();
  auto shape = x.sizes().vec();
  shape.insert(shape.begin(), ranks);
  const auto parts = at::empty(shape, x.options());  // [rank, batch, tokens, ...]
  groups_.all->all_gather(parts, x.contiguous())->wait();
  std::vector<at::Tensor> in_order;
  for (int rank = 0; rank < ranks; ++rank) in_order.push_back(parts[rank].chunk(2, 1)[0]);
  for (int rank = ranks - 1; rank >= 0; --rank) in_order.push_back(parts[rank].chunk(2, 1)[1]);
  return at::cat(in_order, 1);
}

at::Tensor ContextParallel::own_tokens(const at::Tensor& x) {
  const ops::NoGraph guard;
  return parallel::own_tokens(x, {.size = groups_.all->size(), .rank = groups_.all->rank()});
}

}  // namespace automodel::parallel
