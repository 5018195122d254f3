#include "model/block_index.h"

#include <algorithm>
#include <limits>

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/topk.h>
#include <ATen/ops/where.h>

#include "base/score_chunk.h"
#include "model/token_index.h"
#include "ops/element_type.h"
#include "ops/graph.h"
#include "ops/norm.h"

namespace automodel::model {

using arch::Part;

BlockIndex::BlockIndex(const BlockContext& context, int layer)
    : index_(&*context.spec.index), context_(context.seams.context), table_(context.rope), eps_(context.spec.norm_eps) {
  const LayerWeights weights(context, layer);
  query_ = weights.weight(Part::kIndexQuery);
  key_ = weights.weight(Part::kIndexKey);
  query_norm_ = weights.weight(Part::kIndexQueryNorm);
  key_norm_ = weights.weight(Part::kIndexKeyNorm);
}

std::vector<ops::ChosenKeys> BlockIndex::choose(const at::Tensor& y, const Microbatch& microbatch) const {
  const ops::NoGraph guard;
  const HeadShare share(*context_, microbatch);
  const auto batch = y.size(0), tokens = y.size(1);
  const double infinite = std::numeric_limits<double>::infinity();
  const auto type = ops::compute_type(y.scalar_type());
  const auto heads_of = [&](const ops::Parameter& weight, ops::Parameter& norm) {
    const auto heads = at::matmul(y, weight.dense().t()).view({batch, tokens, -1, index_->dim});
    return rotated(ops::rms_norm(heads, norm, eps_, 1), *table_, microbatch, false).to(type);
  };
  // Context-parallel ranks choose for their own tokens among all.
  const auto q = heads_of(*query_, *query_norm_);
  const auto keys = share.all_tokens(heads_of(*key_, *key_norm_).squeeze(2)).transpose(1, 2);
  const auto length = keys.size(2);
  const EarlierTokens earlier(microbatch, share, y.device());
  // A block begins at every so many positions of a document; in a row they are counted on. Padding, whose positions are
  // 0, may be blocks of a token each where documents are packed, and is otherwise counted as if it went on.
  const bool packed = microbatch.segments.defined();
  const auto positions = packed ? share.all_tokens(microbatch.positions)
                                : at::arange(length, microbatch.positions.options()).expand({batch, length});
  const auto block_of = positions.remainder(index_->block).eq(0).cumsum(1) - 1;
  const auto own_block = share.own_tokens(block_of);
  const auto in_document = share.own_tokens(positions).div(index_->block, "floor");
  const auto blocks = packed ? length : (length + index_->block - 1) / index_->block;
  const auto most = std::min<std::int64_t>(index_->top_k / index_->block, blocks);
  const auto rows = score_rows(batch, tokens, length, length, y.is_cpu());
  std::vector<at::Tensor> chosen;
  for (std::int64_t h = 0; h < q.size(2); ++h)
    chosen.push_back(at::empty({batch, tokens, most}, y.options().dtype(ops::ChosenKeys::type_for(length))));
  for (std::int64_t query = 0; query < tokens; query += rows) {
    const auto count = std::min(rows, tokens - query);
    const auto here = [&](const at::Tensor& x) { return x.narrow(1, query, count); };
    const auto hidden = earlier.of(query, count).logical_not();
    const auto at_keys = block_of.unsqueeze(1).expand({batch, count, length});
    for (std::int64_t h = 0; h < q.size(2); ++h) {  // one at a time, because each needs a [queries, keys] matrix
      const auto scores = at::matmul(here(q.select(2, h)), keys).masked_fill_(hidden, -infinite);
      auto best = at::full({batch, count, blocks}, -infinite, scores.options());
      best.scatter_reduce_(2, at_keys, scores, "amax");
      for (int back = 0; back < index_->local; ++back) {
        const auto near = at::where(here(in_document).ge(back), here(own_block) - back, here(own_block));
        best.scatter_(2, near.unsqueeze(2), infinite);
      }
      here(chosen[static_cast<std::size_t>(h)]).copy_(std::get<1>(at::topk(best, most)));
    }
  }
  std::vector<ops::ChosenKeys> out;
  for (const auto& each : chosen) out.push_back({share.all_tokens(each), blocks, block_of});
  return out;
}

}  // namespace automodel::model
