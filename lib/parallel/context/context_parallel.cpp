#include "parallel/context/context_parallel.h"

#include "parallel/context/head_exchange.h"

namespace automodel::parallel {

at::Tensor ContextParallel::attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                      const ops::AttentionOptions& options) {
  auto& heads = *groups_.heads;
  auto here = options;
  here.first_sink += heads.rank() * (q.size(2) / heads.size());
  const auto query = heads_for_tokens(heads, q), key = heads_for_tokens(heads, k), value = heads_for_tokens(heads, v);
  // With a keys group of one rank, the two chunks together are the whole sequence in order.
  const auto out = groups_.keys->size() == 1
                       ? ops::attention(query, key, value, here)
                       : ring_attention(*groups_.keys, query, key, value, here, groups_.transport);
  return tokens_for_heads(heads, out);
}

}  // namespace automodel::parallel
