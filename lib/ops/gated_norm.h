// RMSNorm of the output of a recurrent state, with a gate of the same width.
#pragma once

#include <ATen/core/Tensor.h>

#include "ops/parameter.h"

namespace automodel::ops {

enum class GateOrder { kNormFirst, kGateFirst };
enum class GateShape { kSilu, kSigmoid };

struct GatedNorm {
  ParameterRows weight = {};  ///< [groups * width], or [width] for all groups; none: only the gate, no norm
  double eps = 1e-6;
  GateOrder order = GateOrder::kNormFirst;
  GateShape shape = GateShape::kSilu;
};

/// weight x / rms(x) act(gate), or with the gate first weight z / rms(z), z = x act(gate). x and gate [batch, tokens,
/// groups, width]; the norm is over the width of each group. Computed in float32 or better; the result has the type of
/// x.
at::Tensor gated_norm(const at::Tensor& x, const at::Tensor& gate, const GatedNorm& norm);

}  // namespace automodel::ops
