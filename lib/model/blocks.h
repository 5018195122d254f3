// The parts of a decoder layer. Which of them a layer has follows from the names of its weights and the model's spec.
#pragma once

#include <memory>
#include <string>

#include <ATen/core/Tensor.h>

#include "arch/model_spec.h"
#include "model/rope_table.h"
#include "model/seams.h"
#include "model/weights.h"

namespace automodel::model {

/// One microbatch as a stage sees it: int64 tensors [batch, tokens], this rank's part of the sequence.
struct Microbatch {
  at::Tensor ids = {};
  at::Tensor labels = {};  ///< label[t] is what position t predicts; -100 counts nothing
  at::Tensor positions = {};
  at::Tensor segments = {};  ///< [batch, length]: number of the packed document of every token; or undefined
  std::int64_t length = 0;   ///< tokens of the whole sequence, for tables of positions
  /// True where the tokens here are the whole sequence, also under context parallelism (generation).
  bool whole() const { return positions.size(1) == length; }
};

/// What the blocks of one stage share.
struct BlockContext {
  const arch::ModelSpec& spec;
  const Weights& weights;
  Seams seams;
  RopeTable* rope;          ///< of full-attention layers
  RopeTable* sliding_rope;  ///< of sliding layers; the same where the model has one table
};

/// A block maps y [batch, tokens, width] (normed) to its contribution to the residual stream, of the same shape.
class Block {
 public:
  virtual ~Block() = default;
  virtual at::Tensor forward(const at::Tensor& y, const Microbatch& microbatch) = 0;
};

/// Multi-head attention with grouped keys and values. `prefix` is the layer's FQN.
std::unique_ptr<Block> make_attention(const BlockContext& context, const std::string& prefix, int layer);
/// The dense feed-forward block, gated or not.
std::unique_ptr<Block> make_mlp(const BlockContext& context, const std::string& prefix, int layer);

/// RMSNorm or LayerNorm by the weights that `fqn` has.
class Norm {
 public:
  Norm() = default;
  Norm(const BlockContext& context, const std::string& fqn);
  explicit operator bool() const { return weight_ != nullptr; }
  at::Tensor operator()(const at::Tensor& x) const;
  /// {x + delta, norm of it}; delta may be undefined.
  std::pair<at::Tensor, at::Tensor> after_adding(const at::Tensor& x, const at::Tensor& delta) const;

 private:
  ops::Parameter* weight_ = nullptr;
  ops::Parameter* bias_ = nullptr;
  double eps_ = 1e-6;
  double offset_ = 0;
};

}  // namespace automodel::model
