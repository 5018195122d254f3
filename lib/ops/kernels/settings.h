// What a kernel is asked for, on any device.
#pragma once

#include <cstdint>

namespace automodel::ops {

/// kRelu2 is the square of kRelu.
enum class Gate : std::int8_t { kSilu, kGeluTanh, kGelu, kRelu, kRelu2 };

/// gpt-oss's gate, whose halves lie side by side: (up + 1) gate sigmoid(alpha gate), gate at most `limit` and up at
/// most so far from 0; 0: no limit.
struct PairedGate {
  double alpha = 1, limit = 0;
};

struct AdamStep {
  double lr, beta1, beta2, eps, weight_decay, correction1, correction2, gradient_scale;
  bool decoupled;  ///< AdamW; else weight decay is added to the gradient
  bool maximize;
};

}  // namespace automodel::ops
