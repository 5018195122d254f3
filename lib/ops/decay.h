// Decays of a recurrent state, from the output of a projection.
#pragma once

#include <optional>
#include <utility>

#include <ATen/core/Tensor.h>

#include "ops/parameter.h"

namespace automodel::ops {

struct DecayGate {
  ParameterRows rate = {};  ///< one per head (A_log)
  ParameterRows bias = {};  ///< [heads] or [heads * width] (dt_bias)
  /// Lower bound of the log decays, whose upper bound is 0; unset: unbounded.
  std::optional<double> lower_bound = {};
};

/// Log decay factors of a state from x [batch, tokens, heads] or [batch, tokens, heads, width]:
///   -exp(rate) softplus(x + bias), or with a bound  lower_bound sigmoid(exp(rate) (x + bias)),
/// in float32 or better.
at::Tensor decay_gate(const at::Tensor& x, const DecayGate& gate);

/// Mamba-2's time steps from x [batch, tokens, heads]: softplus(x + bias), clamped to [least, most]; and the log decay
/// factors of the state, -exp(rate) step. Both in float32 or better.
struct StepGate {
  ParameterRows rate = {}, bias = {};  ///< [heads]
  double least = 0, most = 0;          ///< most 0: no limit
};
std::pair<at::Tensor, at::Tensor> step_gate(const at::Tensor& x, const StepGate& gate);

}  // namespace automodel::ops
