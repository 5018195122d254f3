// Parameters of kernels, the same on any device.
#pragma once

#include <cstdint>

namespace automodel::ops {

/// kRelu2 is the square of kRelu.
enum class Gate : std::int8_t { kSilu, kGeluTanh, kGelu, kRelu, kRelu2 };

/// gpt-oss's gate, with gate and up interleaved: (up + 1) gate sigmoid(alpha gate), with gate <= `limit` and |up| <=
/// `limit` by clamping; 0: no limit.
struct PairedGate {
  double alpha = 1, limit = 0;
};

struct AdamStep {
  double lr, beta1, beta2, eps, weight_decay, correction1, correction2, gradient_scale;
  bool decoupled;  ///< AdamW; else weight decay is added to the gradient
  bool maximize;
};

/// What shares a scale in a matrix of 8-bit numbers: the whole matrix, each row, or each column.
enum class ScaleOf : std::uint8_t { kMatrix, kRow, kColumn };

}  // namespace automodel::ops
