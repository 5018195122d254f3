// Residual streams that run in parallel (ModelSpec::hyper).
#pragma once

#include <array>

#include <ATen/core/Tensor.h>

#include "model/blocks.h"

namespace automodel::model {

/// How one block is connected to the streams (manifold-constrained hyper-connections, Xie et al. 2026; as in
/// transformers 5.23). `streams` [batch, tokens, streams * width] throughout.
class HyperConnection {
 public:
  HyperConnection() = default;
  /// Null parameters: there is none. Without a mixture (the end of the last layer) only reading is possible.
  HyperConnection(const BlockContext& context, ops::Parameter* projection, ops::Parameter* bias, ops::Parameter* scale);
  explicit operator bool() const { return projection_ != nullptr; }

  /// What a block reads [batch, tokens, width], the weights of its output for each stream [batch, tokens, streams], and
  /// the mixture of the streams that it is added to [batch, tokens, streams, streams]; the weights in float32 or
  /// better.
  struct Read {
    at::Tensor input, output_weights, mixture;
  };
  Read read(const at::Tensor& streams) const;
  /// The streams behind the block, whose output is [batch, tokens, width].
  at::Tensor write(const at::Tensor& streams, const at::Tensor& output, const Read& read) const;

 private:
  std::vector<at::Tensor> weights(const at::Tensor& streams) const;

  arch::HyperConnections hyper_ = {};
  double norm_eps_ = 0;
  ops::Parameter *projection_ = nullptr, *bias_ = nullptr, *scale_ = nullptr;
};

}  // namespace automodel::model
