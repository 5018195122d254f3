// Activations of the feed-forward block.
#pragma once

#include <ATen/core/Tensor.h>

#include "ops/kernels/settings.h"
#include "ops/parameter.h"

namespace automodel::ops {

/// act(gate) * up; each row of x [..., 2 * width] holds gate, then up. Returns [..., width].
at::Tensor gated(const at::Tensor& x, Gate gate);

/// x with its gates at most `limit` and its ups within +-`limit`, as gated() takes them.
at::Tensor limited(const at::Tensor& x, double limit);

/// gated() of an activated gate that is at most `limit` and an up within +-`limit`.
at::Tensor gated_within(const at::Tensor& x, Gate gate, double limit);

/// gpt-oss's paired gate: each row of x [..., 2 * width] interleaves gate and up (gate, up, gate, up, ...). Returns
/// [..., width].
at::Tensor paired_gate(const at::Tensor& x, const PairedGate& gate);
/// The same of rows that hold all gates, then all ups (MiniMax-M3).
at::Tensor shifted_gate(const at::Tensor& x, const PairedGate& gate);

/// act(x), without a gate.
at::Tensor activate(const at::Tensor& x, Gate gate);

/// The parameters of xIELU, one element each.
struct XieluNumbers {
  Parameter *alpha_p = nullptr, *alpha_n = nullptr;  ///< trained
  Parameter *beta = nullptr, *eps = nullptr;
};
/// softplus(alpha_p) x^2 + beta x where x > 0, else (expm1(min(x, eps)) - x) (beta + softplus(alpha_n)) + beta x (Huang
/// et al. 2024, "Deriving activation functions using integration").
at::Tensor xielu(const at::Tensor& x, const XieluNumbers& numbers);

}  // namespace automodel::ops
