// A causal convolution of a few tokens, each channel on its own: what recurrent layers put before their state.
#pragma once

#include <vector>

#include <ATen/core/Tensor.h>

#include "ops/parameter.h"

namespace automodel::ops {

struct ShortConv {
  std::vector<ParameterRows> weights = {};  ///< [channels_i, 1, taps] each, for neighbouring channels of x; taps <= 8
  std::vector<ParameterRows> biases = {};   ///< none, or one for each weight [channels_i]
  bool silu = true;                         ///< x * sigmoid(x) of the sum
};

/// y[t, c] = act(bias[c] + sum over taps j of weight[c, taps - 1 - j] x[t - j, c]), of x [batch, tokens, channels];
/// tokens before the start of the sequence, or of the packed document where `segments` (int64 [batch, tokens]) is
/// defined, count as 0. The backward pass computes the sum again.
at::Tensor short_conv(const at::Tensor& x, const ShortConv& conv, const at::Tensor& segments);

}  // namespace automodel::ops
