#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/logsumexp.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/zeros.h>

#include "ops/attention_kernels.h"
#include "ops/element_type.h"

namespace automodel::ops {
namespace {

/// Supports every option on every device, by ATen operations. The heads of a group become rows of one matrix, so that
/// their shared keys and values need not be copied: [batch, groups, members * queries, width].
class ScoreChunks {
 public:
  ScoreChunks(const Qkv& in, const BlockOptions& options)
      : in_(in),
        options_(options),
        groups_(in.k.size(2)),
        members_(in.q.size(2) / groups_),
        queries_(in.q.size(1)),
        keys_(in.k.size(1)),
        type_(compute_type(in.q.scalar_type())),
        k_(in.k.transpose(1, 2)),
        v_(in.v.transpose(1, 2)) {}

  BlockResult forward() const {
    BlockResult result;
    result.out = at::empty({in_.q.size(0), queries_, in_.q.size(2), in_.v.size(3)}, in_.q.options());
    result.logsum = at::empty({in_.q.size(0), queries_, in_.q.size(2)}, in_.q.options().dtype(type_));
    for_chunks([&](const Piece& chunk) {
      auto scores = scores_of(chunk);
      const auto logsum = at::logsumexp(scores, -1, true);
      scores.sub_(logsum).exp_();
      write(result.out, chunk, at::matmul(scores.to(in_.v.scalar_type()), part(v_, chunk)));
      write(result.logsum.unsqueeze(3), chunk, logsum);
    });
    return result;
  }

  void backward(const at::Tensor& gradient, const BlockResult& whole, const Qkv& results) const {
    const auto accumulator = in_.q.options().dtype(type_);
    const auto of_heads = [&](const at::Tensor& x) {
      return at::zeros({x.size(0), groups_, keys_, x.size(3)}, accumulator);
    };
    const auto dk = of_heads(in_.k), dv = of_heads(in_.v);
    const auto narrow_type = in_.q.scalar_type();
    for_chunks([&](const Piece& chunk) {
      const auto dout = rows(gradient, chunk).to(narrow_type);
      auto scores = scores_of(chunk);
      auto weights = (scores - rows(whole.logsum.unsqueeze(3), chunk)).exp_();
      part(dv, chunk).add_(at::matmul(weights.to(narrow_type).transpose(2, 3), dout));
      const auto out_dot_dout = (dout.to(type_) * rows(whole.out, chunk).to(type_)).sum(-1, true);
      auto dscores = at::matmul(dout, part(v_, chunk).transpose(2, 3)).to(type_);
      dscores.sub_(out_dot_dout).mul_(weights);
      if (options_.softcap > 0)  // masked scores have weight 0 already
        dscores.mul_(scores.div_(options_.softcap).clamp_(-1, 1).square_().neg_().add_(1));
      const auto narrow_scores = dscores.mul_(options_.scale).to(narrow_type);
      write(results.q, chunk, at::matmul(narrow_scores, part(k_, chunk)));
      part(dk, chunk).add_(at::matmul(narrow_scores.transpose(2, 3), rows(in_.q, chunk)));
    });
    results.k.copy_(dk.transpose(1, 2));
    results.v.copy_(dv.transpose(1, 2));
  }

 private:
  template <class Visit>
  void for_chunks(Visit&& visit) const {
    for (const auto& chunk : query_chunks(in_, options_, in_.q.size(0) * in_.q.size(2))) visit(chunk);
  }

  /// The chunk's queries of x [batch, tokens, heads, width] as rows [batch, groups, members * queries, width].
  at::Tensor rows(const at::Tensor& x, const Piece& chunk) const {
    return x.narrow(1, chunk.query, chunk.queries)
        .unflatten(2, {groups_, members_})
        .permute({0, 2, 3, 1, 4})
        .reshape({x.size(0), groups_, members_ * chunk.queries, x.size(3)});
  }
  /// The inverse of rows(): writes `from` to the chunk's queries of `to`.
  void write(const at::Tensor& to, const Piece& chunk, const at::Tensor& from) const {
    to.narrow(1, chunk.query, chunk.queries)
        .unflatten(2, {groups_, members_})
        .copy_(from.unflatten(2, {members_, chunk.queries}).permute({0, 3, 1, 2, 4}));
  }
  /// The chunk's keys of x [batch, groups, keys, ...].
  static at::Tensor part(const at::Tensor& x, const Piece& chunk) { return x.narrow(2, chunk.key, chunk.keys); }

  at::Tensor scores_of(const Piece& chunk) const {
    auto scores = at::matmul(rows(in_.q, chunk), part(k_, chunk).transpose(2, 3)).to(type_);
    scores.mul_(options_.scale);
    if (options_.softcap > 0) scores.div_(options_.softcap).tanh_().mul_(options_.softcap);
    const auto mask = visibility_mask(options_, chunk.query, chunk.queries, chunk.key, chunk.keys, scores.device());
    if (mask.defined())
      scores.unflatten(2, {members_, chunk.queries}).masked_fill_(mask.unsqueeze(2).logical_not(), kMaskedLogSum);
    return scores;
  }

  const Qkv& in_;
  const BlockOptions& options_;
  std::int64_t groups_, members_, queries_, keys_;
  at::ScalarType type_;
  at::Tensor k_, v_;  ///< [batch, groups, keys, width]
};

}  // namespace

BlockResult composed_block(const Qkv& in, const BlockOptions& options) {
  return ScoreChunks(in, options).forward();
}

void composed_block_backward(const at::Tensor& gradient, const Qkv& in, const BlockResult& whole,
                             const BlockOptions& options, const Qkv& out) {
  ScoreChunks(in, options).backward(gradient, whole, out);
}

}  // namespace automodel::ops
