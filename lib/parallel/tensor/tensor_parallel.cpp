#include "parallel/tensor/tensor_parallel.h"

#include <vector>

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>

#include "base/error.h"
#include "ops/embedding.h"
#include "ops/norm.h"
#include "ops/split.h"
#include "parallel/tensor/moves.h"

namespace automodel::parallel {

using arch::TensorStyle;

TensorParallel::TensorParallel(std::shared_ptr<comm::Communicator> group, const arch::ModelSpec& spec,
                               const arch::Layout& layout, const arch::TensorPlan& plan)
    : group_(std::move(group)),
      layout_(layout),
      plan_(plan),
      sequence_(plan.sequence_parallel),
      head_divided_(arch::divides_vocabulary(plan, layout, arch::Role::kHead)),
      vocab_(spec.vocab),
      outputs_(spec.outputs()) {}

TensorStyle TensorParallel::style_of(const ops::Parameter& weight) const {
  const auto found = styles_.find(weight.name);
  if (found != styles_.end()) return found->second;
  const auto by_vocabulary = [&](arch::Role role) {
    return arch::divides_vocabulary(plan_, layout_, role) ? TensorStyle::kColwise : TensorStyle::kReplicated;
  };
  const bool by_rows = weight.role == arch::Role::kHead || weight.role == arch::Role::kEmbedding;
  const auto style = by_rows ? by_vocabulary(weight.role) : plan_.style_of(arch::plan_name(weight.name));
  return styles_.emplace(weight.name, style).first->second;
}

std::int64_t TensorParallel::local(std::int64_t count, const ops::Parameter& weight) const {
  if (!divided(weight)) return count;
  if (count < size() && size() % count == 0) return 1;  // neighbouring ranks hold copies of one
  AUTOMODEL_CHECK(count % size() == 0, "heads do not divide among tensor-parallel ranks");
  return count / size();
}

at::Tensor TensorParallel::enter(const at::Tensor& x) {
  return sequence_ ? moved(*group_, x, Move::kGatherTokens, Move::kSumOwnTokens)
                   : moved(*group_, x, Move::kNone, Move::kSum);
}

at::Tensor TensorParallel::leave(const at::Tensor& y) {
  return sequence_ ? moved(*group_, y, Move::kSumOwnTokens, Move::kGatherTokens)
                   : moved(*group_, y, Move::kSum, Move::kNone);
}

at::Tensor TensorParallel::enter_alike(const at::Tensor& x) {
  return sequence_ ? moved(*group_, x, Move::kGatherTokens, Move::kOwnTokens) : x;
}

at::Tensor TensorParallel::leave_alike(const at::Tensor& y) {
  return sequence_ ? moved(*group_, y, Move::kOwnTokens, Move::kGatherTokens) : y;
}

ProductOptions TensorParallel::options_for(const ops::Linear& layer) const {
  ProductOptions out{.sequence = sequence_, .overlap = plan_.overlap.before(layer.weights.front()->part)};
  // Dropout is drawn for whole sequences, so shares cannot be processed one by one.
  if (layer.draw) out.overlap.gather = out.overlap.scatter = out.overlap.scatter_in_backward = false;
  return out;
}

ops::Linear TensorParallel::for_own_tokens(const at::Tensor& x, const ops::Linear& layer) const {
  if (!sequence_ || !layer.draw) return layer;
  auto own = std::make_shared<ops::DropoutDraw>();
  own->seed = layer.draw->seed;
  own->step = layer.draw->step;
  const auto share = x.size(1), length = share * size();
  for (std::int64_t row = 0; row < x.size(0); ++row) {
    const auto first = layer.draw->tokens.begin() + row * length + rank() * share;
    own->tokens.insert(own->tokens.end(), first, first + share);
  }
  auto out = layer;
  out.draw = std::move(own);
  return out;
}

at::Tensor TensorParallel::tokenwise(const at::Tensor& x, const ops::Linear& layer) {
  return ops::linear(x, for_own_tokens(x, layer));
}

at::Tensor TensorParallel::norm_of_heads(const at::Tensor& x, ops::Parameter& weight, const ops::Parameter& projection,
                                         std::int64_t width, double eps, double offset) {
  if (!divided(projection)) return TensorSeam::norm_of_heads(x, weight, projection, width, eps, offset);
  // If neighbouring ranks hold copies of the same heads, the sum counts each head that many times.
  const double copies = static_cast<double>(x.size(-1)) * size() / static_cast<double>(width);
  return ops::rms_norm_of_parts(x, weight, width, eps, offset, [this, copies](at::Tensor sums) {
    group_->all_reduce(sums, comm::ReduceOp::kSum)->wait();
    if (copies > 1) sums.div_(copies);
  });
}

at::Tensor TensorParallel::column(const at::Tensor& x, const ops::Linear& layer) {
  switch (style_of(*layer.weights.front())) {
    case TensorStyle::kColwise: return column_product(*group_, x, layer, options_for(layer));
    case TensorStyle::kColwiseGathered:
      return gather_results(column_product(*group_, x, layer, options_for(layer)), layer);
    case TensorStyle::kSequence: return tokenwise(x, layer);
    case TensorStyle::kReplicated:
    case TensorStyle::kReplicatedSummedGradient: return ops::linear(enter_alike(x), layer);
    case TensorStyle::kRowwise:
    case TensorStyle::kRowwiseSplit: break;
  }
  throw InternalError("a first product is divided by its inputs: " + layer.weights.front()->name);
}

at::Tensor TensorParallel::row(const at::Tensor& x, const ops::Linear& layer) {
  const auto style = style_of(*layer.weights.front());
  if (style == TensorStyle::kSequence) return tokenwise(x, layer);
  if (style != TensorStyle::kRowwise && style != TensorStyle::kRowwiseSplit) return leave_alike(ops::linear(x, layer));
  const auto own = style == TensorStyle::kRowwise ? x : moved(*group_, x, Move::kOwnFeatures, Move::kGatherFeatures);
  return row_product(*group_, own, layer, options_for(layer));
}

at::Tensor TensorParallel::gather_results(const at::Tensor& y, const ops::Linear& layer) {
  const auto gather = [&](const at::Tensor& part) {
    return moved(*group_, part, Move::kGatherFeatures, Move::kOwnFeatures);
  };
  if (layer.weights.size() == 1) return gather(y);
  std::vector<std::int64_t> sizes;
  for (const auto* weight : layer.weights) sizes.push_back(weight->shape[0]);
  std::vector<at::Tensor> whole;
  for (const auto& part : ops::split(y, sizes)) whole.push_back(gather(part));
  return at::cat(whole, -1);
}

at::Tensor TensorParallel::tokens(const at::Tensor& x) {
  return sequence_ ? move(*group_, x, Move::kOwnTokens) : x;
}

at::Tensor TensorParallel::alike(const at::Tensor& rows) {
  return sequence_ ? moved(*group_, rows, Move::kNone, Move::kSum) : rows;
}

at::Tensor TensorParallel::embed(const at::Tensor& ids, ops::Parameter& table, const at::Tensor& anchor,
                                 std::int64_t padding) {
  if (!divided(table)) return leave_alike(ops::embedding(ids, table, anchor, padding));
  const auto first = VocabularyShare::of(vocab_, size(), rank()).first;
  return leave(ops::embedding_shard(ids, table, anchor, first, padding));
}

at::Tensor TensorParallel::loss(const at::Tensor& logits, const at::Tensor& labels, const ops::Factor& scale,
                                std::int64_t ignore) {
  if (!head_divided_) return TensorSeam::loss(logits, labels, scale, ignore);
  AUTOMODEL_CHECK(!scale.device.defined(), "ranks that share a vocabulary know the factor of the loss");
  return vocabulary_loss(*group_, logits, labels, scale.value, ignore, VocabularyShare::of(outputs_, size(), rank()));
}

at::Tensor TensorParallel::head_loss(const at::Tensor& x, const ops::Linear& head, const at::Tensor& labels,
                                     const ops::HeadLoss& loss) {
  if (!head_divided_) return ops::linear_cross_entropy(enter_alike(x), head, labels, loss);
  const auto share = VocabularyShare::of(outputs_, size(), rank());
  auto mine = loss;
  mine.first = share.first;
  mine.columns = share.rows;
  mine.gather = [this](const at::Tensor& statistics) {
    auto all = at::empty({size(), statistics.size(0), statistics.size(1)}, statistics.options());
    group_->all_gather(all, statistics)->wait();
    return all;
  };
  return ops::linear_cross_entropy(enter(x), head, labels, mine);
}

at::Tensor TensorParallel::whole_logits(const at::Tensor& logits) {
  if (!head_divided_) return logits;
  return moved(*group_, logits, Move::kGatherFeatures, Move::kOwnFeatures).narrow(-1, 0, outputs_);
}

at::Tensor TensorParallel::part(const at::Tensor& x) {
  return sequence_ ? x : moved(*group_, x, Move::kOwnTokens, Move::kGatherTokens);
}

at::Tensor TensorParallel::whole(const at::Tensor& y) {
  return sequence_ ? y : moved(*group_, y, Move::kGatherTokens, Move::kOwnTokens);
}

}  // namespace automodel::parallel
