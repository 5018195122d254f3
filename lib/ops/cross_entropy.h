// The loss: cross-entropy of the head's logits, its gradient computed at once and in place of the logits.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

namespace automodel::ops {

/// Sum over rows of cross-entropy times `scale` (1 / label tokens of the global batch), as a float64 tensor of one
/// element that gradients flow from. logits [..., vocabulary] are consumed: their memory becomes the gradient. labels
/// int64 [...]; rows whose label is `ignore` count nothing. Without a graph nothing but the sum is computed.
at::Tensor cross_entropy(const at::Tensor& logits, const at::Tensor& labels, double scale, std::int64_t ignore = -100);

}  // namespace automodel::ops
