// The feed-forward blocks of the experts that this rank holds.
#pragma once

#include <string>

#include <ATen/core/Tensor.h>

#include "arch/model_spec.h"
#include "model/blocks.h"
#include "ops/grouped_linear.h"
#include "ops/kernels/kernels.h"

namespace automodel::model {

/// Experts with tensors of their own, or with tensors for all of them: [experts, in, out] with gate and up alternating
/// (gpt-oss), or [experts, out, in] with the gate first (Granite).
class Experts {
 public:
  Experts(const BlockContext& context, int layer);

  /// Experts here.
  std::int64_t count() const { return up_.groups(); }
  /// Whether forward() must be told on the host how many rows each expert has; asked with the weights here.
  bool needs_counts() const { return ops::needs_counts(up_) || ops::needs_counts(down_); }
  /// x [n, width] sorted by expert, `rows` those of the experts here. Returns [n, width].
  at::Tensor forward(const at::Tensor& x, const ops::GroupRows& rows) const;

 private:
  ops::GroupedLinear up_ = {}, down_ = {};
  ops::Gate gate_;
  bool gated_;
  bool paired_;
  double alpha_, limit_;
};

}  // namespace automodel::model
