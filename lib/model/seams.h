// The parallel hooks of the model: around sharded linear layers, inside attention, around experts. The classes here are
// for a single rank, parallel/ has those for many. This is all that the model knows about other ranks.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>

#include "ops/attention.h"
#include "ops/factor.h"
#include "ops/grouped_linear.h"
#include "ops/linear.h"
#include "ops/linear_cross_entropy.h"
#include "ops/parameter.h"
#include "ops/row_copies.h"

namespace automodel::model {

/// Tensor parallelism: column-parallel layers share their input, row-parallel layers sum their outputs.
///
/// Between blocks, the residual stream holds all tokens on every rank or, with sequence parallelism, a different share
/// of the tokens on each; features are never divided there. Inside a block every rank has all tokens, and heads or the
/// feed-forward width are divided. column() enters a block, row() leaves it.
class TensorSeam {
 public:
  virtual ~TensorSeam() = default;
  virtual int size() const { return 1; }
  virtual int rank() const { return 0; }
  /// How many of the `count` equal parts (heads) of the results of `weight` column() computes on this rank.
  virtual std::int64_t local(std::int64_t count, const ops::Parameter& /*weight*/) const { return count; }
  /// The residual stream x [batch, tokens, width] as a column-parallel matmul needs it: with all tokens. Also for
  /// anything else that every rank of a divided block uses; its gradients are summed over ranks.
  virtual at::Tensor enter(const at::Tensor& x) { return x; }
  /// The sum over ranks of what each computed in a divided block, as the residual stream holds it.
  virtual at::Tensor leave(const at::Tensor& y) { return y; }
  /// The first linear layer of a block, from the residual stream.
  virtual at::Tensor column(const at::Tensor& x, const ops::Linear& layer) { return ops::linear(x, layer); }
  /// The last linear layer of a block, back to the residual stream.
  virtual at::Tensor row(const at::Tensor& x, const ops::Linear& layer) { return ops::linear(x, layer); }
  /// RMSNorm of x [batch, tokens, heads here * head width], the results of `projection`, over the `width` features of
  /// all heads.
  virtual at::Tensor norm_of_heads(const at::Tensor& x, ops::Parameter& weight, const ops::Parameter& projection,
                                   std::int64_t width, double eps, double offset);
  /// A linear layer that acts on each token separately, applied to the rank-local tokens.
  virtual at::Tensor tokenwise(const at::Tensor& x, const ops::Linear& layer) { return ops::linear(x, layer); }
  /// The rows of x [batch, tokens, ...], one per token, for those tokens that this rank has in the residual stream.
  /// Without a graph.
  virtual at::Tensor tokens(const at::Tensor& x) { return x; }
  /// Rows that every rank computed alike, of which each uses those for its own tokens: their gradients are summed over
  /// ranks, so that they are alike again.
  virtual at::Tensor alike(const at::Tensor& rows) { return rows; }
  /// Token embeddings [batch, tokens, width], as the residual stream holds them; the row of `padding` (-1: none) gets
  /// no gradient.
  virtual at::Tensor embed(const at::Tensor& ids, ops::Parameter& table, const at::Tensor& anchor,
                           std::int64_t padding);
  /// Cross-entropy of logits whose vocabulary may be split across ranks; see ops::cross_entropy.
  virtual at::Tensor loss(const at::Tensor& logits, const at::Tensor& labels, const ops::Factor& scale,
                          std::int64_t ignore);
  /// column() by the head and loss() fused, in chunks of tokens; see ops::linear_cross_entropy. Sets `loss.first`,
  /// `columns` and `gather`.
  virtual at::Tensor head_loss(const at::Tensor& x, const ops::Linear& head, const at::Tensor& labels,
                               const ops::HeadLoss& loss) {
    return ops::linear_cross_entropy(x, head, labels, loss);
  }
  /// Logits for the whole vocabulary, for generation and tests.
  virtual at::Tensor whole_logits(const at::Tensor& logits) { return logits; }
  /// Gives each rank different tokens: a share of the tokens of x, from the residual stream; x itself if ranks have
  /// shares already. whole() is the inverse. Weights used in between get partial gradients.
  virtual at::Tensor part(const at::Tensor& x) { return x; }
  virtual at::Tensor whole(const at::Tensor& y) { return y; }

  at::Tensor column(const at::Tensor& x, const ops::Parameters& weights, const ops::Parameters& biases) {
    return column(x, ops::Linear{.weights = weights, .biases = biases});
  }
  at::Tensor row(const at::Tensor& x, ops::Parameter& weight, ops::Parameter* bias) {
    return row(x, ops::Linear{.weights = {&weight}, .biases = {bias}});
  }
};

/// Context parallelism: each rank has part of the tokens of every sequence.
class ContextSeam {
 public:
  virtual ~ContextSeam() = default;
  virtual int size() const { return 1; }
  virtual int rank() const { return 0; }
  /// q, k, v of the tokens here; options.segments is for the whole sequence.
  virtual at::Tensor attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                               const ops::AttentionOptions& options) {
    return ops::attention(q, k, v, options);
  }
  /// For layers that pass a state from token to token: x [batch, tokens here, heads, width] to [batch, tokens of the
  /// sequence, heads / size, width], the tokens in order and the heads number rank() of `size` equal parts.
  virtual at::Tensor heads_for_tokens(const at::Tensor& x) { return x; }
  /// The inverse.
  virtual at::Tensor tokens_for_heads(const at::Tensor& x) { return x; }
  /// For layers that look a few tokens back, on several ranks: x [batch, tokens here, width] as its runs of consecutive
  /// tokens, each behind the `count` tokens before it, which are zero where the sequence begins: [batch, runs, count +
  /// tokens of a run, width].
  virtual at::Tensor with_earlier(const at::Tensor& x, std::int64_t /*count*/) { return x; }
  /// x [batch, tokens here, ...] of all ranks, the tokens in order: [batch, tokens of the sequence, ...]. Without a
  /// graph.
  virtual at::Tensor all_tokens(const at::Tensor& x) { return x; }
  /// The rows, one per token, of x [batch, tokens of the sequence, ...] for the tokens here. Without a graph.
  virtual at::Tensor own_tokens(const at::Tensor& x) { return x; }
};

/// The routing of token rows to experts. Rows are sorted by expert; each rank holds a contiguous range of experts.
struct ExpertRoute {
  std::vector<std::int64_t> sent = {};      ///< number of rows to each rank
  std::vector<std::int64_t> received = {};  ///< number of rows from each rank
  ops::GroupRows rows = {};                 ///< rows of each expert here
  ops::RowCopies copies = {};               ///< sent rows as copies, if several ranks share an expert; else undefined
  ops::RowCopies order = {};                ///< sorts the received rows by expert; undefined: they are sorted
};

/// Rows in flight; arrive() completes them.
struct RowsInFlight {
  at::Tensor rows = {};        ///< part of the graph; contents undefined until arrive()
  ops::RowCopies copies = {};  ///< for rows that arrive in parts to be summed; else undefined
  std::shared_ptr<void> state = {};
};

/// Expert parallelism: ranks hold different experts and send each other the rows for them.
class ExpertSeam {
 public:
  virtual ~ExpertSeam() = default;
  virtual int size() const { return 1; }
  /// Number of parts that a layer's tokens are split into, so that the transfer of one overlaps with computing another.
  virtual int parts() const { return 1; }
  /// Defer the experts' weight gradients until the gradient of their input has been sent.
  virtual bool late_expert_gradients() const { return false; }
  /// `counts` int64 [experts]: this rank's rows for each expert of the model. Collective; the host waits for the device
  /// once.
  virtual ExpertRoute route(const at::Tensor& counts);
  /// Sends rows to the experts or, with `back`, their results to where the tokens are. Gradients travel in the opposite
  /// direction: the backward pass of arrive() sends them, then calls `departed`; that of send() waits for them.
  virtual RowsInFlight send(const at::Tensor& x, const ExpertRoute& /*route*/, bool /*back*/) { return {x, {}, {}}; }
  virtual at::Tensor arrive(const RowsInFlight& in_flight, std::function<void()> departed);
  /// All-reduces (sums) `values` over the ranks that have different tokens of the same microbatch.
  virtual void sum_over_tokens(at::Tensor /*values*/) {}
};

/// The seams that a model is built with; the objects must outlive it.
struct Seams {
  TensorSeam* tensor = nullptr;
  ContextSeam* context = nullptr;
  ExpertSeam* expert = nullptr;
};

}  // namespace automodel::model
