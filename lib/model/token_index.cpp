#include "model/token_index.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/topk.h>
#include <ATen/ops/zeros.h>

#include "base/score_chunk.h"
#include "ops/attention.h"
#include "ops/element_type.h"
#include "ops/graph.h"
#include "ops/norm.h"

namespace automodel::model {

using arch::Part;

namespace {

constexpr double kKeyNormEps = 1e-6;  // regardless of rms_norm_eps

at::Tensor product(const at::Tensor& x, const ops::Parameter& weight) {
  return at::matmul(x, weight.dense().t());
}

}  // namespace

at::Tensor best_scored(const at::Tensor& q, const at::Tensor& keys, const at::Tensor& weights, const at::Tensor& may,
                       std::int64_t most) {
  auto sums = at::zeros({q.size(0), q.size(1), keys.size(2)}, keys.options());
  for (std::int64_t h = 0; h < q.size(2); ++h)  // one head at a time, because each needs a [queries, keys] matrix
    sums.add_(at::relu(at::matmul(q.select(2, h), keys)).mul_(weights.select(2, h).unsqueeze(2)));
  sums.masked_fill_(may.logical_not(), -std::numeric_limits<double>::infinity());
  return std::get<1>(at::topk(sums, most));
}

TokenIndex::TokenIndex(const BlockContext& context, int layer)
    : index_(&*context.spec.index), context_(context.seams.context), table_(context.rope) {
  const LayerWeights weights(context, layer);
  query_ = weights.weight(Part::kIndexQuery);
  key_ = weights.weight(Part::kIndexKey);
  key_norm_ = weights.weight(Part::kIndexKeyNorm);
  key_norm_bias_ = weights.bias(Part::kIndexKeyNorm);
  weights_ = weights.weight(Part::kIndexWeights);
}

EarlierTokens::EarlierTokens(const Microbatch& microbatch, const HeadShare& share, at::Device device)
    : keys_(at::arange(microbatch.length, at::TensorOptions().dtype(at::kLong).device(device)).unsqueeze(0)),
      queries_(share.own_tokens(keys_)),
      key_segments_(microbatch.segments) {
  if (key_segments_.defined()) query_segments_ = share.own_tokens(key_segments_);
}

at::Tensor EarlierTokens::of(std::int64_t query, std::int64_t queries) const {
  const auto earlier = keys_.unsqueeze(1).le(queries_.narrow(1, query, queries).unsqueeze(2));
  if (!key_segments_.defined()) return earlier;
  return earlier.logical_and(ops::same_segment(query_segments_.narrow(1, query, queries), key_segments_).squeeze(1));
}

ops::ChosenKeys TokenIndex::choose(const at::Tensor& y, const at::Tensor& low_q, const Microbatch& microbatch) const {
  const ops::NoGraph guard;
  const HeadShare share(*context_, microbatch);
  const auto batch = y.size(0), tokens = y.size(1);
  const auto heads = std::int64_t{index_->heads}, dim = std::int64_t{index_->dim};
  const auto type = ops::compute_type(y.scalar_type());
  const auto turned = [&](const at::Tensor& x) {
    return (table_ == nullptr ? x : rotated(x, *table_, microbatch, index_->interleaved)).to(type);
  };
  const auto q = turned(product(low_q, *query_).view({batch, tokens, heads, dim}));
  const auto normed = ops::layer_norm(product(y, *key_), key_norm_, key_norm_bias_, kKeyNormEps);
  const auto k = turned(normed.unsqueeze(2)).squeeze(2);
  const auto weights = at::matmul(y.to(type), weights_->dense().to(type).t()) / std::sqrt(static_cast<double>(heads));
  // Context-parallel ranks choose for their own tokens among all.
  const auto keys = share.all_tokens(k).transpose(1, 2) / std::sqrt(static_cast<double>(dim));
  const auto length = keys.size(2), most = std::min<std::int64_t>(index_->top_k, length);
  const EarlierTokens earlier(microbatch, share, y.device());
  const auto best = at::empty({batch, tokens, most}, y.options().dtype(ops::ChosenKeys::type_for(length)));
  const auto rows = score_rows(batch, tokens, length, length, y.is_cpu());
  for (std::int64_t query = 0; query < tokens; query += rows) {
    const auto count = std::min(rows, tokens - query);
    best.narrow(1, query, count)
        .copy_(best_scored(q.narrow(1, query, count), keys, weights.narrow(1, query, count), earlier.of(query, count),
                           most));
  }
  return {share.all_tokens(best), length};
}

}  // namespace automodel::model
