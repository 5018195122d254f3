// Norms of query and key heads (ModelSpec::head_norm).
#pragma once

#include <vector>

#include <ATen/core/Tensor.h>

#include "model/blocks.h"

namespace automodel::model {

class HeadNorm {
 public:
  HeadNorm() = default;
  /// `heads`: number in the whole model; `projection`: the weight whose results are normed.
  HeadNorm(const BlockContext& context, const LayerWeights& weights, arch::Part part, std::int64_t heads,
           const ops::Parameter& projection);
  explicit operator bool() const { return tensor_ != nullptr; }
  /// x [batch, tokens, heads here, width].
  at::Tensor operator()(const at::Tensor& x);

 private:
  TensorSeam* tensor_ = nullptr;
  arch::HeadNorm norm_ = {};
  ops::Parameter *weight_ = nullptr, *bias_ = nullptr;
  const ops::Parameter* projection_ = nullptr;
  std::vector<ops::Parameter*> each_ = {};  ///< weights of the heads here, if every head has a module of its own
  std::int64_t heads_ = 0;
  double eps_ = 0, offset_ = 0;
  UnitRms unweighted_ = {};
};

}  // namespace automodel::model
