// The feed-forward blocks of the experts that this rank holds.
#pragma once

#include <span>
#include <string>

#include <ATen/core/Tensor.h>

#include "arch/model_spec.h"
#include "model/weights.h"
#include "ops/grouped_linear.h"
#include "ops/kernels/kernels.h"

namespace automodel::model {

/// Experts by the names that their weights have below `fqn`, a layer's list of experts: N.{w1,w3,w2} (Mixtral),
/// N.{gate,up,down}_proj, or gate_up_proj and down_proj for all of them, transposed, with gate and up interleaved
/// (gpt-oss).
class Experts {
 public:
  Experts(const arch::ModelSpec& spec, const Weights& weights, const std::string& fqn);

  /// Experts here.
  std::int64_t count() const { return up_.groups(); }
  /// x [n, width] sorted by expert, rows[e] rows for expert e of those here. Returns [n, width].
  at::Tensor forward(const at::Tensor& x, std::span<const std::int64_t> rows) const;

 private:
  at::Tensor clamped(const at::Tensor& wide) const;

  ops::GroupedLinear up_ = {}, down_ = {};
  ops::Gate gate_;
  double alpha_, limit_;
};

}  // namespace automodel::model
