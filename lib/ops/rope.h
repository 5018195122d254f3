// Rotary position embedding.
#pragma once

#include <ATen/core/Tensor.h>

namespace automodel::ops {

/// Rotates pairs (i, i + width/2) of the last dimension or, `interleaved`, pairs (2i, 2i + 1). x [..., tokens, heads,
/// width] with contiguous heads; cos and sin [positions, width/2] in float32 (float64 for float64); positions int64
/// [..., tokens].
at::Tensor rope(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin, const at::Tensor& positions,
                bool interleaved = false);

/// The same in place and without a graph; `sign` -1 rotates back. x may be a view with evenly strided rows.
void rope_in_place(at::Tensor x, const at::Tensor& cos, const at::Tensor& sin, const at::Tensor& positions, double sign,
                   bool interleaved = false);

}  // namespace automodel::ops
