// A causal depthwise convolution over a few tokens, as recurrent layers have before their state.
#pragma once

#include <vector>

#include <ATen/core/Tensor.h>

#include "ops/parameter.h"

namespace automodel::ops {

struct ShortConv {
  std::vector<ParameterRows> weights = {};  ///< [channels_i, 1, taps] each, for consecutive channels of x; taps <= 8
  std::vector<ParameterRows> biases = {};   ///< none, or one per weight [channels_i]
  bool silu = true;                         ///< apply x * sigmoid(x) to the sum
};

/// y[t, c] = act(bias[c] + sum over taps j of weight[c, taps - 1 - j] x[t - j, c]), for x [batch, tokens, channels].
/// Tokens before the start of the sequence, or of the packed document if `segments` (int64 [batch, tokens]) is defined,
/// count as 0. The backward pass recomputes the sum.
at::Tensor short_conv(const at::Tensor& x, const ShortConv& conv, const at::Tensor& segments);

}  // namespace automodel::ops
