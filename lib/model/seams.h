// The parallel hooks of the model: around sharded linear layers, inside attention, around experts. The classes here are
// for a single rank; parallel/ has those for many. The model knows nothing else about other ranks.
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

namespace automodel::model {

/// Tensor parallelism: column-parallel layers share their input, row-parallel layers sum their outputs.
///
/// Between blocks the residual stream holds all tokens on every rank or, with sequence parallelism, another part of
/// the tokens on each; `width` is whole. Inside a block tokens are whole and heads or the feed-forward width are
/// divided. column() leads in, row() leads out.
class TensorSeam {
 public:
  virtual ~TensorSeam() = default;
  virtual int size() const { return 1; }
  virtual int rank() const { return 0; }
  /// How many of the `count` equal parts (heads) of the results of `weight` column() gives here.
  virtual std::int64_t local(std::int64_t count, const ops::Parameter& /*weight*/) const { return count; }
  /// x [batch, tokens, width] of the residual stream as a column-parallel product needs it: all tokens. Also for what
  /// else every rank of a divided block uses; its gradients are summed.
  virtual at::Tensor enter(const at::Tensor& x) { return x; }
  /// The sum over ranks of what each rank of a divided block made, as the residual stream has it.
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
  /// The tokens of the residual stream that are here, of something that has a row for every token: [batch, tokens,
  /// ...], without a graph.
  virtual at::Tensor tokens(const at::Tensor& x) { return x; }
  /// Token embeddings [batch, tokens, width], as the residual stream has them; the row of `padding` (-1: none) gets no
  /// gradient.
  virtual at::Tensor embed(const at::Tensor& ids, ops::Parameter& table, const at::Tensor& anchor,
                           std::int64_t padding);
  /// Cross-entropy of logits whose vocabulary may be shared among ranks; see ops::cross_entropy.
  virtual at::Tensor loss(const at::Tensor& logits, const at::Tensor& labels, const ops::Factor& scale,
                          std::int64_t ignore);
  /// column() by the head and loss() in one, chunk of tokens by chunk; see ops::linear_cross_entropy. `loss.first`,
  /// `columns` and `gather` are set here.
  virtual at::Tensor head_loss(const at::Tensor& x, const ops::Linear& head, const at::Tensor& labels,
                               const ops::HeadLoss& loss) {
    return ops::linear_cross_entropy(x, head, labels, loss);
  }
  /// Whole logits, for generation and tests.
  virtual at::Tensor whole_logits(const at::Tensor& logits) { return logits; }
  /// Each rank works on different tokens: x of the residual stream as a part of its tokens; the same where ranks have
  /// parts already. whole() is the way back. The weights in between get partial gradients.
  virtual at::Tensor part(const at::Tensor& x) { return x; }
  virtual at::Tensor whole(const at::Tensor& y) { return y; }

  at::Tensor column(const at::Tensor& x, const ops::Parameters& weights, const ops::Parameters& biases) {
    return column(x, ops::Linear{.weights = weights, .biases = biases});
  }
  at::Tensor row(const at::Tensor& x, ops::Parameter& weight, ops::Parameter* bias) {
    return row(x, ops::Linear{.weights = {&weight}, .biases = {bias}});
  }
};

/// Context parallelism: each rank has a part of every sequence.
class ContextSeam {
 public:
  virtual ~ContextSeam() = default;
  virtual int size() const { return 1; }
  /// q, k, v of the tokens here; options.segments of the whole sequence.
  virtual at::Tensor attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                               const ops::AttentionOptions& options) {
    return ops::attention(q, k, v, options);
  }
};

/// The routing of token rows to experts. Rows are sorted by expert; a rank holds a run of the experts.
struct ExpertRoute {
  std::vector<std::int64_t> sent = {};      ///< rows to each rank
  std::vector<std::int64_t> received = {};  ///< rows from each rank
  ops::GroupRows rows = {};                 ///< of each expert here
  at::Tensor copies =
      {};                 ///< int64: which row each one sent is, where several ranks share an expert; undefined: itself
  at::Tensor order = {};  ///< int64: the received rows sorted by expert, and the way back; undefined: they are sorted
  at::Tensor back = {};
};

/// Rows under way; arrive() gives them.
struct TravellingRows {
  at::Tensor rows = {};    ///< in the graph; contents undefined until they arrived
  at::Tensor copies = {};  ///< rows that are parts of one are summed on arrival: which one each belongs to
  std::shared_ptr<void> state = {};
};

/// Expert parallelism: ranks hold different experts and send each other the rows for them.
class ExpertSeam {
 public:
  virtual ~ExpertSeam() = default;
  virtual int size() const { return 1; }
  /// Parts that the tokens of a layer are cut into, so that rows of one travel while another is computed.
  virtual int parts() const { return 1; }
  /// The experts' weight gradients wait until their input's gradient is on its way.
  virtual bool late_weight_gradients() const { return false; }
  /// `counts` int64 [experts]: the rows here of each expert of the model. All ranks call it together, and the host
  /// waits for the device once.
  virtual ExpertRoute route(const at::Tensor& counts);
  /// Sends rows to the experts, or (`back`) their results to where the tokens are. The gradients travel the other way:
  /// they leave when arrive()'s backward pass runs, which then calls `departed`, and are waited for in that of send().
  virtual TravellingRows send(const at::Tensor& x, const ExpertRoute& /*route*/, bool /*back*/) { return {x, {}, {}}; }
  virtual at::Tensor arrive(const TravellingRows& travelling, std::function<void()> departed);
  /// Sums `values` over the ranks that have different tokens of the same microbatch.
  virtual void sum_over_tokens(at::Tensor /*values*/) {}
};

/// What a model is built with; the objects outlive it.
struct Seams {
  TensorSeam* tensor = nullptr;
  ContextSeam* context = nullptr;
  ExpertSeam* expert = nullptr;
};

}  // namespace automodel::model
