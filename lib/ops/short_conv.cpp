#include "ops/short_conv.h"

#include <algorithm>
#include <memory>

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include "base/error.h"
#include "ops/element_type.h"
#include "ops/graph.h"

namespace automodel::ops {
namespace {

template <class T>
const ConvKernels<T>& conv_kernels() {
  return pick<T>(kernels().conv_float, kernels().conv_double, kernels().conv_bfloat16);
}

/// All rows of the parameters, concatenated, in type `type`: [channels, columns].
at::Tensor joined(const std::vector<ParameterRows>& parts, at::ScalarType type) {
  std::vector<at::Tensor> values;
  for (const auto& part : parts) values.push_back(part.value().reshape({part.rows(), -1}).to(type));
  return values.size() == 1 ? values.front() : at::cat(values, 0);
}

void accumulate_rows(const std::vector<ParameterRows>& parts, const at::Tensor& gradient) {
  std::int64_t row = 0;
  for (const auto& part : parts) {
    part.accumulate(gradient.narrow(0, row, part.rows()).contiguous());
    row += part.rows();
  }
}

/// How many preceding tokens contribute to each one: int32 [batch, tokens].
at::Tensor reach_of(const at::Tensor& x, std::int64_t taps, const at::Tensor& segments) {
  const auto batch = x.size(0), tokens = x.size(1);
  auto out = at::empty({batch, tokens}, at::kInt);
  const auto numbers = segments.defined() ? segments.to(at::kLong).contiguous() : segments;
  auto* reach = out.mutable_data_ptr<std::int32_t>();
  const auto* number = numbers.defined() ? numbers.const_data_ptr<std::int64_t>() : nullptr;
  for (std::int64_t b = 0; b < batch; ++b)
    for (std::int64_t t = 0; t < tokens; ++t) {
      const auto at = b * tokens + t;
      const bool starts = t == 0 || (number != nullptr && number[at] != number[at - 1]);
      reach[at] = starts ? 0 : std::min(reach[at - 1] + 1, static_cast<std::int32_t>(taps) - 1);
    }
  return out;
}

/// x with contiguous channels and evenly strided rows; part of a joined projection is used in place.
at::Tensor with_rows(const at::Tensor& x) {
  return x.stride(2) == 1 && x.stride(0) == x.size(1) * x.stride(1) ? x : x.contiguous();
}

/// Arguments of the fused kernels for one pass; owns the tensors that they point to.
template <class T>
struct Pass {
  using C = typename Compute<T>::type;
  at::Tensor weight, bias, reach;
  ConvInput<T> in = {};
  Pass(const at::Tensor& x, const ShortConv& conv, const at::Tensor& segments) {
    const auto type = compute_type(x.scalar_type());
    weight = joined(conv.weights, type).t().contiguous();
    if (!conv.biases.empty()) bias = joined(conv.biases, type).contiguous();
    reach = reach_of(x, weight.size(0), segments);
    in = {.x = x.const_data_ptr<T>(),
          .stride = x.stride(1),
          .channels = x.size(2),
          .taps = weight.size(0),
          .weight = weight.const_data_ptr<C>(),
          .bias = bias.defined() ? bias.template const_data_ptr<C>() : nullptr,
          .reach = reach.const_data_ptr<std::int32_t>(),
          .silu = conv.silu};
  }
  /// The same for one sequence of the batch.
  ConvInput<T> sequence(std::int64_t index, std::int64_t tokens) const {
    auto out = in;
    out.x += index * tokens * in.stride;
    out.reach += index * tokens;
    return out;
  }
};

at::Tensor fused_forward(const at::Tensor& x, const ShortConv& conv, const at::Tensor& segments) {
  auto y = at::empty({x.size(0), x.size(1), x.size(2)}, x.options());
  const auto tokens = x.size(1), channels = x.size(2);
  for_type(x.scalar_type(), [&](auto* tag) {
    using T = std::remove_pointer_t<decltype(tag)>;
    const Pass<T> pass(x, conv, segments);
    T* out = y.mutable_data_ptr<T>();
    at::parallel_for(0, x.size(0) * tokens, kRowsPerTask, [&](std::int64_t begin, std::int64_t end) {
      while (begin < end) {
        const auto sequence = begin / tokens, first = begin % tokens, last = std::min(tokens, first + end - begin);
        conv_kernels<T>().forward(pass.sequence(sequence, tokens), out + sequence * tokens * channels, first, last);
        begin += last - first;
      }
    });
  });
  return y;
}

struct Gradients {
  at::Tensor x, weight, bias;  ///< gradients of x, the weights [channels, taps] and the biases [channels]; the
                               ///< latter two for all parts together
};

Gradients fused_backward(const at::Tensor& x, const ShortConv& conv, const at::Tensor& segments,
                         const at::Tensor& gradient) {
  const auto batch = x.size(0), tokens = x.size(1), channels = x.size(2);
  const auto dy = gradient.to(x.scalar_type()).contiguous();
  auto dx = at::empty({batch, tokens, channels}, x.options());
  const auto wide = x.options().dtype(compute_type(x.scalar_type()));
  at::Tensor dweight, dbias = at::zeros({batch, channels}, wide);
  for_type(x.scalar_type(), [&](auto* tag) {
    using T = std::remove_pointer_t<decltype(tag)>;
    using C = typename Compute<T>::type;
    const Pass<T> pass(x, conv, segments);
    const auto taps = pass.in.taps;
    dweight = at::zeros({batch, taps, channels}, wide);
    T* out = dx.mutable_data_ptr<T>();
    const T* from = dy.const_data_ptr<T>();
    C* to_weight = dweight.mutable_data_ptr<C>();
    C* to_bias = dbias.mutable_data_ptr<C>();
    const auto blocks = (channels + kConvChannels - 1) / kConvChannels;
    at::parallel_for(0, batch * blocks, 1, [&](std::int64_t begin, std::int64_t end) {
      for (auto task = begin; task < end; ++task) {
        const auto b = task / blocks, channel = task % blocks * kConvChannels;
        conv_kernels<T>().backward(pass.sequence(b, tokens), from + b * tokens * channels, out + b * tokens * channels,
                                   to_weight + b * taps * channels, to_bias + b * channels, tokens, channel,
                                   std::min(kConvChannels, channels - channel));
      }
    });
  });
  return {dx, dweight.sum(0).t(), dbias.sum(0)};
}

/// ATen's operations, for devices without the kernel: sums x shifted by each tap, zero beyond the start of a document.
class Composed {
 public:
  Composed(const at::Tensor& x, const ShortConv& conv, const at::Tensor& segments)
      : x_(x.to(compute_type(x.scalar_type()))),
        weight_(joined(conv.weights, x_.scalar_type())),
        segments_(segments),
        silu_(conv.silu) {
    sum_ = conv.biases.empty() ? at::zeros_like(x_)
                               : joined(conv.biases, x_.scalar_type()).view({-1}).expand(x_.sizes()).clone();
    for (std::int64_t back = 0; back < taps(); ++back) sum_ += seen(x_, back) * tap(back);
  }
  at::Tensor result() const { return silu_ ? at::silu(sum_) : sum_; }
  Gradients gradients(const at::Tensor& gradient) const {
    auto slope = gradient.to(x_.scalar_type());
    if (silu_) {
      const auto s = at::sigmoid(sum_);
      slope = slope * s * (1 + sum_ * (1 - s));
    }
    Gradients out{at::zeros_like(x_), at::empty(weight_.sizes(), weight_.options()), slope.flatten(0, 1).sum(0)};
    for (std::int64_t back = 0; back < taps(); ++back) {
      out.weight.select(1, taps() - 1 - back).copy_((slope * seen(x_, back)).flatten(0, 1).sum(0));
      const auto there = masked(slope, back);
      const auto tokens = x_.size(1) - back;
      if (tokens > 0) out.x.narrow(1, 0, tokens) += there.narrow(1, back, tokens) * tap(back);
    }
    return out;
  }

 private:
  std::int64_t taps() const { return weight_.size(1); }
  at::Tensor tap(std::int64_t back) const { return weight_.select(1, taps() - 1 - back); }
  /// x shifted by `back` tokens, zero where there is none.
  at::Tensor seen(const at::Tensor& x, std::int64_t back) const {
    if (back == 0) return x;
    const auto tokens = std::max<std::int64_t>(0, x.size(1) - back);
    return masked(at::constant_pad_nd(x.narrow(1, 0, tokens), {0, 0, x.size(1) - tokens, 0}), back);
  }
  /// Zeroes x where the token `back` places earlier is in another document.
  at::Tensor masked(const at::Tensor& x, std::int64_t back) const {
    if (back == 0 || !segments_.defined() || back >= x.size(1)) return x;
    const auto tokens = x.size(1) - back;
    const auto same = segments_.narrow(1, back, tokens).eq(segments_.narrow(1, 0, tokens));
    return x * at::constant_pad_nd(same.to(x.scalar_type()), {back, 0}).unsqueeze(2);
  }

  at::Tensor x_, weight_, segments_, sum_;
  bool silu_;
};

class ShortConvBackward : public Backward {
 public:
  ShortConvBackward(at::Tensor x, ShortConv conv, at::Tensor segments)
      : x_(std::move(x)), conv_(std::move(conv)), segments_(std::move(segments)) {}
  std::vector<at::Tensor> backward(std::vector<at::Tensor> gradients, const std::vector<bool>&) override {
    if (!gradients[0].defined()) return {at::Tensor()};
    NoGraph guard;
    const auto out = has_kernel(x_) ? fused_backward(x_, conv_, segments_, gradients[0])
                                    : Composed(x_, conv_, segments_).gradients(gradients[0]);
    accumulate_rows(conv_.weights, out.weight);
    accumulate_rows(conv_.biases, out.bias);
    return {out.x.to(x_.scalar_type())};
  }
  void visit_saved(const std::function<void(at::Tensor&)>& visit) override { visit(x_); }
  const char* name() const override { return "short_conv"; }

 private:
  at::Tensor x_;
  ShortConv conv_;
  at::Tensor segments_;
};

}  // namespace

at::Tensor short_conv(const at::Tensor& x, const ShortConv& conv, const at::Tensor& segments) {
  at::Tensor rows, y;
  {
    NoGraph guard;
    rows = with_rows(x.detach());
    const auto taps = conv.weights.front().parameter->shape.back();
    AUTOMODEL_CHECK(taps >= 1 && taps <= kConvTaps, "a short convolution has 1 to 8 taps");
    y = has_kernel(rows) ? fused_forward(rows, conv, segments)
                         : Composed(rows, conv, segments).result().to(rows.scalar_type());
  }
  if (records({x})) record({y}, {x}, std::make_unique<ShortConvBackward>(rows, conv, segments));
  return y;
}

}  // namespace automodel::ops
