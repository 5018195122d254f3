// A causal depthwise convolution with few taps.
#pragma once

#include <algorithm>
#include <cstdint>

#include "ops/kernels/exp_loops.h"
#include "ops/kernels/kernels.h"
#include "ops/kernels/rounding.h"

namespace automodel::ops::AUTOMODEL_ISA {
namespace {

// NOLINTBEGIN(readability-function-size): arrays, their strides and sizes
/// sum[c] = bias[c] + the taps of row `row`, as far back as its document reaches.
template <class T, class C>
inline void conv_row(const T* x, std::int64_t row, std::int64_t stride, const C* weight, std::int64_t channels,
                     std::int64_t taps, std::int64_t reach, const C* bias, C* sum, std::int64_t width) {
  for (std::int64_t c = 0; c < width; ++c) sum[c] = bias != nullptr ? bias[c] : C(0);
  for (std::int64_t back = 0; back <= reach; ++back) {
    const T* in = x + (row - back) * stride;
    const C* w = weight + (taps - 1 - back) * channels;
    for (std::int64_t c = 0; c < width; ++c) sum[c] += w[c] * static_cast<C>(in[c]);
  }
}

template <class T>
void conv_forward(const ConvInput<T>& in, T* y, std::int64_t first, std::int64_t last) {
  using C = typename Compute<T>::type;
  C sum[kConvChannels];
  for (std::int64_t row = first; row < last; ++row)
    for (std::int64_t from = 0; from < in.channels; from += kConvChannels) {
      const auto width = std::min(kConvChannels, in.channels - from);
      conv_row(in.x + from, row, in.stride, in.weight + from, in.channels, in.taps, in.reach[row],
               in.bias != nullptr ? in.bias + from : nullptr, sum, width);
      T* out = y + row * in.channels + from;
      if (in.silu)
        for (std::int64_t c = 0; c < width; ++c) out[c] = rounded<T>(sum[c] * sigmoid(sum[c]));
      else
        for (std::int64_t c = 0; c < width; ++c) out[c] = rounded<T>(sum[c]);
    }
}

template <class T>
void conv_backward(const ConvInput<T>& in, const T* dy, T* dx, typename Compute<T>::type* dweight,
                   typename Compute<T>::type* dbias, std::int64_t rows, std::int64_t from, std::int64_t width) {
  using C = typename Compute<T>::type;
  C slope[kConvChannels];
  C waiting[kConvTaps][kConvChannels];  // ring buffer: dx of the latest rows, which later rows may still add to
  for (auto& row : waiting) std::fill(row, row + width, C(0));
  const C* bias = in.bias != nullptr ? in.bias + from : nullptr;
  const auto write = [&](std::int64_t row) {
    C* kept = waiting[row % kConvTaps];
    T* out = dx + row * in.channels + from;
    for (std::int64_t c = 0; c < width; ++c) {
      out[c] = rounded<T>(kept[c]);
      kept[c] = C(0);
    }
  };
  for (std::int64_t row = 0; row < rows; ++row) {
    const T* gradient = dy + row * in.channels + from;
    const auto reach = in.reach[row];
    if (in.silu) {
      conv_row(in.x + from, row, in.stride, in.weight + from, in.channels, in.taps, reach, bias, slope, width);
      for (std::int64_t c = 0; c < width; ++c) {
        const C s = sigmoid(slope[c]);
        slope[c] = static_cast<C>(gradient[c]) * s * (C(1) + slope[c] * (C(1) - s));
      }
    } else {
      for (std::int64_t c = 0; c < width; ++c) slope[c] = static_cast<C>(gradient[c]);
    }
    for (std::int64_t c = 0; c < width; ++c) dbias[from + c] += slope[c];
    for (std::int64_t back = 0; back <= reach; ++back) {
      const T* x = in.x + (row - back) * in.stride + from;
      const auto tap = (in.taps - 1 - back) * in.channels + from;
      const C* w = in.weight + tap;
      C* dw = dweight + tap;
      C* to = waiting[(row - back) % kConvTaps];
      for (std::int64_t c = 0; c < width; ++c) {
        dw[c] += slope[c] * static_cast<C>(x[c]);
        to[c] += slope[c] * w[c];
      }
    }
    if (row >= in.taps - 1) write(row - in.taps + 1);
  }
  for (std::int64_t row = std::max<std::int64_t>(0, rows - in.taps + 1); row < rows; ++row) write(row);
}
// NOLINTEND(readability-function-size)

}  // namespace
}  // namespace automodel::ops::AUTOMODEL_ISA
