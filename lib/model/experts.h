// The feed-forward blocks of the experts that this rank holds.
#pragma once

#include <string>

#include <ATen/core/Tensor.h>

#include "arch/model_spec.h"
#include "model/blocks.h"
#include "ops/grouped_linear.h"
#include "ops/kernels/kernels.h"

namespace automodel::model {

/// Experts with separate tensors, or gpt-oss's, stacked in joint tensors: [experts, in, out], gate and up interleaved.
class Experts {
 public:
  Experts(const BlockContext& context, int layer);

  /// Number of experts on this rank.
  std::int64_t count() const { return up_.groups(); }
  /// Whether forward() needs the rows per expert on the host. Call while the weights are present.
  bool needs_counts() const { return ops::needs_counts(up_) || ops::needs_counts(down_); }
  /// x [n, width], sorted by expert; `rows` tells the rows of each expert here. Returns [n, width].
  at::Tensor forward(const at::Tensor& x, const ops::GroupRows& rows) const;

 private:
  ops::GroupedLinear up_ = {}, down_ = {};
  ops::Gate gate_;
  bool gated_;
  bool paired_, shifted_;
  double alpha_, limit_, end_limit_;  ///< limits before the activation, and behind it
};

}  // namespace automodel::model
