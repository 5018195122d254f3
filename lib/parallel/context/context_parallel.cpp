#include "parallel/context/context_parallel.h"

#include <vector>

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>

#include "ops/graph.h"
#include "parallel/context/head_exchange.h"
#include "parallel/context/layout.h"

namespace automodel::parallel {

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
