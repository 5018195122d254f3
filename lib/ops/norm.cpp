#include "ops/norm.h"

#include <optional>

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/native_layer_norm.h>
#include <ATen/ops/native_layer_norm_backward.h>
#include <ATen/ops/rsqrt.h>
#include <ATen/ops/zeros.h>

#include "base/error.h"
#include "ops/element_type.h"
#include "ops/graph.h"
#include "ops/kernels/kernels.h"

namespace automodel::ops {
namespace {

template <class T>
const NormKernels<T>& norm_kernels() {
  return pick<T>(kernels().norm_float, kernels().norm_double, kernels().norm_bfloat16);
}

struct Forward {
  at::Tensor sum, y, rstd;
};

const void* data_or_null(const at::Tensor& x) {
  return x.defined() ? x.const_data_ptr() : nullptr;
}

/// Arguments of the device's backward kernel.
struct DeviceBackward {
  const at::Tensor &dy, &dsum, &x, &weight, &mean, &rstd;
  bool centred;
  double offset;
  int kept;
};
std::pair<at::Tensor, at::Tensor> backward_on_device(const DeviceKernels& device, const DeviceBackward& in) {
  const auto columns = in.x.size(-1), rows = in.x.numel() / std::max<std::int64_t>(columns, 1);
  const auto options = in.x.options().dtype(compute_type(in.x.scalar_type()));
  auto dx = at::empty_like(in.x, at::MemoryFormat::Contiguous);
  at::Tensor partial, dparameters;
  if (in.kept > 0) {
    partial = at::empty({device.norm_parts(rows), in.kept, columns}, options);
    dparameters = at::empty({in.kept, columns}, options);
  }
  device.norm_backward(element_of(in.x), {rows, columns, in.centred, 0, in.offset},
                       {.dy = in.dy.const_data_ptr(),
                        .dsum = data_or_null(in.dsum),
                        .x = in.x.const_data_ptr(),
                        .weight = data_or_null(in.weight),
                        .mean = data_or_null(in.mean),
                        .rstd = in.rstd.const_data_ptr(),
                        .dx = dx.mutable_data_ptr(),
                        .partial = in.kept > 0 ? partial.mutable_data_ptr() : nullptr,
                        .dparameters = in.kept > 0 ? dparameters.mutable_data_ptr() : nullptr,
                        .kept = in.kept},
                       device.stream());
  return {dx, dparameters};
}

/// ATen's operations, for devices and types without a kernel.
Forward compose(const at::Tensor& x, const at::Tensor& delta, const at::Tensor& weight, double eps, double offset) {
  const auto type = compute_type(x.scalar_type());
  const auto sum = delta.defined() ? x + delta : x;
  const auto wide = sum.to(type);
  const auto rstd = at::rsqrt(wide.square().mean(-1, true) + eps);
  return {sum, (wide * rstd * (weight.to(type) + offset)).to(x.scalar_type()), rstd};
}

Forward forward(const at::Tensor& x, const at::Tensor& delta, const at::Tensor& weight, double eps, double offset) {
  const auto* device = device_kernels(x);
  if ((device == nullptr && !has_kernel(x)) || weight.scalar_type() != x.scalar_type() ||
      (delta.defined() && delta.scalar_type() != x.scalar_type()))
    return compose(x, delta, weight, eps, offset);
  const auto columns = x.size(-1);
  const auto rows = x.numel() / std::max<std::int64_t>(columns, 1);
  Forward out{delta.defined() ? at::empty_like(x, at::MemoryFormat::Contiguous) : x.contiguous(),
              at::empty_like(x, at::MemoryFormat::Contiguous),
              at::empty({rows}, x.options().dtype(compute_type(x.scalar_type())))};
  const auto input = x.contiguous();
  const auto other = delta.defined() ? delta.contiguous() : delta;
  if (device != nullptr) {
    device->norm_forward(element_of(x), {rows, columns, false, eps, offset},
                         {.x = input.const_data_ptr(),
                          .delta = data_or_null(other),
                          .weight = weight.const_data_ptr(),
                          .bias = nullptr,
                          .sum = delta.defined() ? out.sum.mutable_data_ptr() : nullptr,
                          .y = out.y.mutable_data_ptr(),
                          .mean = nullptr,
                          .rstd = out.rstd.mutable_data_ptr()},
                         device->stream());
    return out;
  }
  for_type(x.scalar_type(), [&](auto* tag) {
    using T = std::remove_pointer_t<decltype(tag)>;
    using C = typename Compute<T>::type;
    const T* in = input.const_data_ptr<T>();
    const T* add = other.defined() ? other.const_data_ptr<T>() : nullptr;
    T* sum = delta.defined() ? out.sum.mutable_data_ptr<T>() : nullptr;
    T* y = out.y.mutable_data_ptr<T>();
    C* rstd = out.rstd.mutable_data_ptr<C>();
    at::parallel_for(0, rows, kRowsPerTask, [&](std::int64_t begin, std::int64_t end) {
      const auto at = begin * columns;
      norm_kernels<T>().forward(in + at, add != nullptr ? add + at : nullptr, weight.const_data_ptr<T>(),
                                sum != nullptr ? sum + at : nullptr, y + at, rstd + begin, end - begin, columns, eps,
                                offset);
    });
  });
  return out;
}

class RmsNormBackward : public Backward {
 public:
  RmsNormBackward(at::Tensor x, at::Tensor rstd, Parameter& weight, double offset, bool added)
      : x_(std::move(x)), rstd_(std::move(rstd)), weight_(weight), offset_(offset), added_(added) {}

  std::vector<at::Tensor> backward(std::vector<at::Tensor> gradients, const std::vector<bool>&) override {
    NoGraph guard;
    const auto dsum = added_ ? gradients[0] : at::Tensor();
    const auto dy = gradients[added_ ? 1 : 0];
    at::Tensor dx = dsum;
    if (dy.defined())
      dx = (has_kernel(x_) || device_kernels(x_) != nullptr) && weight_.value.scalar_type() == x_.scalar_type()
               ? fused(dy, dsum)
               : composed(dy, dsum);
    if (added_) return {dx, dx};
    return {dx};
  }
  void visit_saved(const std::function<void(at::Tensor&)>& visit) override {
    for (auto* each : {&x_, &rstd_}) visit(*each);
  }
  const char* name() const override { return "rms_norm"; }

 private:
  at::Tensor fused(const at::Tensor& dy, const at::Tensor& dsum) {
    const auto columns = x_.size(-1);
    const auto gradient = dy.to(x_.scalar_type()).contiguous();
    const auto residual = dsum.defined() ? dsum.to(x_.scalar_type()).contiguous() : dsum;
    if (const auto* device = device_kernels(x_)) {
      const bool trained = weight_.trained();
      const auto [dx, dweight] = backward_on_device(
          *device, {gradient, residual, x_, weight_.value, at::Tensor(), rstd_, false, offset_, trained ? 1 : 0});
      if (trained) accumulate(weight_, dweight[0]);
      return dx;
    }
    auto dx = at::empty_like(x_, at::MemoryFormat::Contiguous);
    const auto rows = x_.numel() / columns;
    const auto parts = parts_of_sum(rows, kRowsPerTask);
    auto dweight = at::zeros({parts, columns}, x_.options().dtype(compute_type(x_.scalar_type())));
    for_type(x_.scalar_type(), [&](auto* tag) {
      using T = std::remove_pointer_t<decltype(tag)>;
      using C = typename Compute<T>::type;
      const T* g = gradient.template const_data_ptr<T>();
      const T* add = residual.defined() ? residual.template const_data_ptr<T>() : nullptr;
      const T* in = x_.const_data_ptr<T>();
      const C* rstd = rstd_.const_data_ptr<C>();
      T* out = dx.template mutable_data_ptr<T>();
      C* sums = dweight.template mutable_data_ptr<C>();
      for_parts(rows, parts, [&](std::int64_t part, std::int64_t begin, std::int64_t end) {
        const auto at = begin * columns;
        norm_kernels<T>().backward(g + at, add != nullptr ? add + at : nullptr, in + at,
                                   weight_.value.const_data_ptr<T>(), rstd + begin, out + at, sums + part * columns,
                                   end - begin, columns, offset_);
      });
      for (std::int64_t part = 1; part < parts; ++part)
        for (std::int64_t c = 0; c < columns; ++c) sums[c] += sums[part * columns + c];
    });
    accumulate(weight_, dweight[0]);
    return dx;
  }
  at::Tensor composed(const at::Tensor& dy, const at::Tensor& dsum) {
    const auto type = compute_type(x_.scalar_type());
    const auto x = x_.to(type), g = dy.to(type), w = weight_.value.to(type) + offset_;
    const auto normal = x * rstd_;
    accumulate(weight_, (g * normal).reshape({-1, x.size(-1)}).sum(0));
    const auto gw = g * w;
    auto dx = (rstd_ * (gw - normal * (gw * normal).mean(-1, true))).to(x_.scalar_type());
    return dsum.defined() ? dx + dsum : dx;
  }

  at::Tensor x_, rstd_;
  Parameter& weight_;
  double offset_;
  bool added_;
};

std::optional<at::Tensor> affine(const Parameter* parameter, double offset) {
  if (parameter == nullptr) return std::nullopt;
  return offset == 0 ? parameter->value : parameter->value + offset;
}

/// The device's kernels, if they support this combination of x and parameters; else null.
const DeviceKernels* layer_norm_kernels(const at::Tensor& x, const Parameter* weight, const Parameter* bias) {
  for (const auto* each : {weight, bias})
    if (each != nullptr && each->value.scalar_type() != x.scalar_type()) return nullptr;
  return weight == nullptr && bias != nullptr ? nullptr : device_kernels(x);
}

class LayerNormBackward : public Backward {
 public:
  LayerNormBackward(at::Tensor x, at::Tensor mean, at::Tensor rstd, Parameter* weight, Parameter* bias, double offset,
                    bool added)
      : x_(std::move(x)),
        mean_(std::move(mean)),
        rstd_(std::move(rstd)),
        weight_(weight),
        bias_(bias),
        offset_(offset),
        added_(added) {}
  std::vector<at::Tensor> backward(std::vector<at::Tensor> gradients, const std::vector<bool>&) override {
    NoGraph guard;
    const auto dsum = added_ ? gradients[0] : at::Tensor();
    const auto dy = gradients[added_ ? 1 : 0];
    const auto dx = dy.defined() ? through(dy, dsum) : dsum;
    if (added_) return {dx, dx};
    return {dx};
  }
  void visit_saved(const std::function<void(at::Tensor&)>& visit) override {
    for (auto* each : {&x_, &mean_, &rstd_}) visit(*each);
  }
  const char* name() const override { return "layer_norm"; }

 private:
  at::Tensor through(const at::Tensor& dy, const at::Tensor& dsum) {
    const bool of_weight = weight_ != nullptr && weight_->trained(), of_bias = bias_ != nullptr && bias_->trained();
    if (const auto* device = layer_norm_kernels(x_, weight_, bias_)) {
      const auto residual = dsum.defined() ? dsum.to(x_.scalar_type()).contiguous() : dsum;
      const auto [dx, dparameters] =
          backward_on_device(*device, {dy.to(x_.scalar_type()).contiguous(), residual, x_,
                                       weight_ != nullptr ? weight_->value : at::Tensor(), mean_, rstd_, true, offset_,
                                       of_bias     ? 2
                                       : of_weight ? 1
                                                   : 0});
      if (of_weight) accumulate(*weight_, dparameters[0]);
      if (of_bias) accumulate(*bias_, dparameters[1]);
      return dx;
    }
    auto [dx, dweight, dbias] =
        at::native_layer_norm_backward(dy.contiguous(), x_, {x_.size(-1)}, mean_, rstd_, affine(weight_, offset_),
                                       affine(bias_, 0), {true, of_weight, of_bias});
    if (of_weight) accumulate(*weight_, dweight);
    if (of_bias) accumulate(*bias_, dbias);
    return dsum.defined() ? dx + dsum : dx;
  }

  at::Tensor x_, mean_, rstd_;
  Parameter *weight_, *bias_;
  double offset_;
  bool added_;
};

struct LayerNormed {
  at::Tensor sum, y, mean, rstd;
};

LayerNormed normed(const at::Tensor& x, const at::Tensor& delta, const Parameter* weight, const Parameter* bias,
                   double eps, double offset) {
  NoGraph guard;
  const auto* device = layer_norm_kernels(x, weight, bias);
  LayerNormed out;
  if (device == nullptr || (delta.defined() && delta.scalar_type() != x.scalar_type())) {
    out.sum = (delta.defined() ? x.detach() + delta.detach() : x.detach()).contiguous();
    std::tie(out.y, out.mean, out.rstd) =
        at::native_layer_norm(out.sum, {x.size(-1)}, affine(weight, offset), affine(bias, 0), eps);
    return out;
  }
  const auto columns = x.size(-1), rows = x.numel() / std::max<std::int64_t>(columns, 1);
  const auto input = x.detach().contiguous(), other = delta.defined() ? delta.detach().contiguous() : delta;
  out = {delta.defined() ? at::empty_like(input) : input, at::empty_like(input),
         at::empty({rows}, x.options().dtype(compute_type(x.scalar_type()))),
         at::empty({rows}, x.options().dtype(compute_type(x.scalar_type())))};
  device->norm_forward(element_of(x), {rows, columns, true, eps, offset},
                       {.x = input.const_data_ptr(),
                        .delta = data_or_null(other),
                        .weight = weight != nullptr ? weight->value.const_data_ptr() : nullptr,
                        .bias = bias != nullptr ? bias->value.const_data_ptr() : nullptr,
                        .sum = delta.defined() ? out.sum.mutable_data_ptr() : nullptr,
                        .y = out.y.mutable_data_ptr(),
                        .mean = out.mean.mutable_data_ptr(),
                        .rstd = out.rstd.mutable_data_ptr()},
                       device->stream());
  return out;
}

class PartNormBackward : public Backward {
 public:
  PartNormBackward(at::Tensor x, at::Tensor rstd, Parameter& weight, std::int64_t width, double offset, SumRows sum)
      : x_(std::move(x)),
        rstd_(std::move(rstd)),
        weight_(weight),
        width_(static_cast<double>(width)),
        offset_(offset),
        sum_(std::move(sum)) {}
  std::vector<at::Tensor> backward(std::vector<at::Tensor> gradients, const std::vector<bool>&) override {
    AUTOMODEL_CHECK(gradients[0].defined(), "ranks would disagree about a collective");
    NoGraph guard;
    const auto type = compute_type(x_.scalar_type());
    const auto x = x_.to(type), g = gradients[0].to(type), normal = x * rstd_;
    accumulate(weight_, (g * normal).reshape({-1, x.size(-1)}).sum(0));
    const auto gw = g * (weight_.value.to(type) + offset_);
    auto along = (gw * normal).sum(-1, true);
    sum_(along);
    return {(rstd_ * (gw - normal * (along / width_))).to(x_.scalar_type())};
  }
  void visit_saved(const std::function<void(at::Tensor&)>& visit) override {
    for (auto* each : {&x_, &rstd_}) visit(*each);
  }
  const char* name() const override { return "rms_norm_of_parts"; }

 private:
  at::Tensor x_, rstd_;
  Parameter& weight_;
  double width_, offset_;
  SumRows sum_;
};

class ScaledByBackward : public Backward {
 public:
  ScaledByBackward(at::Tensor x, Parameter& weight) : x_(std::move(x)), weight_(weight) {}
  std::vector<at::Tensor> backward(std::vector<at::Tensor> gradients, const std::vector<bool>&) override {
    if (!gradients[0].defined()) return {at::Tensor()};
    NoGraph guard;
    auto shape = weight_.shape;
    shape.insert(shape.begin(), -1);
    if (weight_.trained()) accumulate(weight_, (gradients[0] * x_).reshape(shape).sum(0));
    return {gradients[0] * weight_.value};
  }
  void visit_saved(const std::function<void(at::Tensor&)>& visit) override { visit(x_); }
  const char* name() const override { return "scaled_by"; }

 private:
  at::Tensor x_;
  Parameter& weight_;
};

}  // namespace

at::Tensor rms_norm(const at::Tensor& x, Parameter& weight, double eps, double offset) {
  Forward result;
  {
    NoGraph guard;
    result = forward(x.detach(), at::Tensor(), weight.value, eps, offset);
  }
  if (records({x}))
    record({result.y}, {x}, std::make_unique<RmsNormBackward>(result.sum, result.rstd, weight, offset, false));
  return result.y;
}

std::pair<at::Tensor, at::Tensor> add_rms_norm(const at::Tensor& x, const at::Tensor& delta, Parameter& weight,
                                               double eps, double offset) {
  Forward result;
  {
    NoGraph guard;
    result = forward(x.detach(), delta.detach(), weight.value, eps, offset);
  }
  if (records({x, delta}))
    record({result.sum, result.y}, {x, delta},
           std::make_unique<RmsNormBackward>(result.sum.detach(), result.rstd, weight, offset, true));
  return {result.sum, result.y};
}

at::Tensor layer_norm(const at::Tensor& x, Parameter* weight, Parameter* bias, double eps, double offset) {
  const auto out = normed(x, at::Tensor(), weight, bias, eps, offset);
  if (records({x}))
    record({out.y}, {x}, std::make_unique<LayerNormBackward>(out.sum, out.mean, out.rstd, weight, bias, offset, false));
  return out.y;
}

std::pair<at::Tensor, at::Tensor> add_layer_norm(const at::Tensor& x, const at::Tensor& delta, Parameter* weight,
                                                 Parameter* bias, double eps, double offset) {
  const auto out = normed(x, delta, weight, bias, eps, offset);
  if (records({x, delta}))
    record({out.sum, out.y}, {x, delta},
           std::make_unique<LayerNormBackward>(out.sum.detach(), out.mean, out.rstd, weight, bias, offset, true));
  return {out.sum, out.y};
}

at::Tensor rms_norm_of_parts(const at::Tensor& x, Parameter& weight, std::int64_t width, double eps, double offset,
                             const SumRows& sum) {
  at::Tensor y, rstd, input;
  {
    NoGraph guard;
    const auto type = compute_type(x.scalar_type());
    input = x.detach();
    const auto wide = input.to(type);
    auto squares = wide.square().sum(-1, true);
    sum(squares);
    rstd = at::rsqrt(squares / static_cast<double>(width) + eps);
    y = (wide * rstd * (weight.value.to(type) + offset)).to(x.scalar_type());
  }
  if (records({x})) record({y}, {x}, std::make_unique<PartNormBackward>(input, rstd, weight, width, offset, sum));
  return y;
}

at::Tensor scaled_by(const at::Tensor& x, Parameter& weight) {
  at::Tensor y, input;
  {
    NoGraph guard;
    input = x.detach();
    y = input * weight.value;
  }
  if (records({x})) record({y}, {x}, std::make_unique<ScaledByBackward>(input, weight));
  return y;
}

}  // namespace automodel::ops
