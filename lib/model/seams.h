// Where parallelism enters the model: before and after the products that ranks share, inside attention, around experts.
// The classes here do what one rank does; parallel/ has those for many. The model knows nothing else of other ranks.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

#include "ops/attention.h"
#include "ops/parameter.h"

namespace automodel::model {

/// Tensor parallelism: column-parallel products share their input, row-parallel ones add up their results.
class TensorSeam {
 public:
  virtual ~TensorSeam() = default;
  virtual int size() const { return 1; }
  virtual int rank() const { return 0; }
  /// x [batch, tokens, width] as a column-parallel product needs it: gathered from sequence shards where they are.
  virtual at::Tensor enter(const at::Tensor& x) { return x; }
  /// The sum over ranks of a row-parallel product's results (its sequence shard where sequences are sharded).
  virtual at::Tensor leave(const at::Tensor& y) { return y; }
  /// enter, product and (for row) product, leave in one step, so that an implementation can overlap them.
  virtual at::Tensor column(const at::Tensor& x, const ops::Parameters& weights, const ops::Parameters& biases);
  virtual at::Tensor row(const at::Tensor& x, ops::Parameter& weight, ops::Parameter* bias);
  /// Token embeddings [batch, tokens, width] (a sequence shard where sequences are sharded); the row of `padding` (-1:
  /// none) gets no gradient.
  virtual at::Tensor embed(const at::Tensor& ids, ops::Parameter& table, const at::Tensor& anchor,
                           std::int64_t padding);
  /// Cross-entropy of logits whose vocabulary may be shared among ranks; see ops::cross_entropy.
  virtual at::Tensor loss(const at::Tensor& logits, const at::Tensor& labels, double scale, std::int64_t ignore);
  /// Whole logits, for generation and tests.
  virtual at::Tensor whole_logits(const at::Tensor& logits) { return logits; }
};

/// Context parallelism: each rank has a part of every sequence.
class ContextSeam {
 public:
  virtual ~ContextSeam() = default;
  virtual int size() const { return 1; }
  virtual at::Tensor attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                               const ops::AttentionOptions& options) {
    return ops::attention(q, k, v, options);
  }
};

/// What a model is built with; the objects outlive it.
struct Seams {
  TensorSeam* tensor = nullptr;
  ContextSeam* context = nullptr;
};

}  // namespace automodel::model
