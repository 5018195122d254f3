#include "ops/activation.h"

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/clamp.h>
#include <ATen/ops/clamp_max.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/expm1.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/gelu_backward.h>
#include <ATen/ops/minimum.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/silu_backward.h>
#include <ATen/ops/softplus.h>
#include <ATen/ops/threshold_backward.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros_like.h>

#include "base/error.h"
#include "ops/element_type.h"
#include "ops/graph.h"
#include "ops/split.h"

namespace automodel::ops {
namespace {

at::Tensor apply(const at::Tensor& x, Gate gate) {
  switch (gate) {
    case Gate::kSilu: return at::silu(x);
    case Gate::kGeluTanh: return at::gelu(x, "tanh");
    case Gate::kGelu: return at::gelu(x, "none");
    case Gate::kRelu: return at::relu(x);
    case Gate::kRelu2: return at::relu(x).square();
  }
  throw InternalError("unknown activation");
}

at::Tensor apply_backward(const at::Tensor& gradient, const at::Tensor& x, Gate gate) {
  switch (gate) {
    case Gate::kSilu: return at::silu_backward(gradient, x);
    case Gate::kGeluTanh: return at::gelu_backward(gradient, x, "tanh");
    case Gate::kGelu: return at::gelu_backward(gradient, x, "none");
    case Gate::kRelu: return at::threshold_backward(gradient, x, 0);
    case Gate::kRelu2: return gradient * at::relu(x) * 2;
  }
  throw InternalError("unknown activation");
}

template <class T>
const GateKernels<T>& gate_kernels() {
  return pick<T>(kernels().gate_float, kernels().gate_double, kernels().gate_bfloat16);
}

class GatedBackward : public Backward {
 public:
  GatedBackward(at::Tensor x, Gate gate) : x_(std::move(x)), gate_(gate) {}
  std::vector<at::Tensor> backward(std::vector<at::Tensor> gradients, const std::vector<bool>&) override {
    if (!gradients[0].defined()) return {at::Tensor()};
    NoGraph guard;
    const auto columns = x_.size(-1) / 2;
    const auto gradient = gradients[0].to(x_.scalar_type()).contiguous();
    if (const auto* device = device_kernels(x_)) {
      auto dx = at::empty_like(x_, at::MemoryFormat::Contiguous);
      device->gate_backward(element_of(x_), gradient.const_data_ptr(), x_.const_data_ptr(), dx.mutable_data_ptr(),
                            gradient.numel() / std::max<std::int64_t>(columns, 1), columns, gate_, device->stream());
      return {dx};
    }
    if (!has_kernel(x_)) {
      const auto g = x_.narrow(-1, 0, columns), up = x_.narrow(-1, columns, columns);
      return {at::cat({apply_backward(gradient * up, g, gate_), gradient * apply(g, gate_)}, -1)};
    }
    auto dx = at::empty_like(x_, at::MemoryFormat::Contiguous);
    for_type(x_.scalar_type(), [&](auto* tag) {
      using T = std::remove_pointer_t<decltype(tag)>;
      const T* g = gradient.const_data_ptr<T>();
      const T* in = x_.const_data_ptr<T>();
      T* out = dx.mutable_data_ptr<T>();
      at::parallel_for(0, x_.numel() / (2 * columns), kRowsPerTask, [&](std::int64_t begin, std::int64_t end) {
        gate_kernels<T>().backward(g + begin * columns, in + begin * 2 * columns, out + begin * 2 * columns,
                                   end - begin, columns, gate_);
      });
    });
    return {dx};
  }
  void visit_saved(const std::function<void(at::Tensor&)>& visit) override { visit(x_); }
  const char* name() const override { return "gated"; }

 private:
  at::Tensor x_;
  Gate gate_;
};

/// Gates and ups of x [..., 2 * width], as views: neighbours, or with `apart` in two halves.
struct GateAndUp {
  GateAndUp(const at::Tensor& x, bool apart) {
    auto shape = x.sizes().vec();  // not -1: there may be no rows
    const auto width = shape.back() / 2;
    shape.back() = apart ? 2 : width;
    shape.push_back(apart ? width : 2);
    const auto whole = x.view(shape);
    gate = whole.select(apart ? -2 : -1, 0);
    up = whole.select(apart ? -2 : -1, 1);
  }
  at::Tensor gate, up;
};

class PairedGateBackward : public Backward {
 public:
  PairedGateBackward(at::Tensor x, PairedGate gate, bool apart) : x_(std::move(x)), gate_(gate), apart_(apart) {}
  std::vector<at::Tensor> backward(std::vector<at::Tensor> gradients, const std::vector<bool>&) override {
    if (!gradients[0].defined()) return {at::Tensor()};
    NoGraph guard;
    const auto gradient = gradients[0].to(x_.scalar_type()).contiguous();
    auto dx = at::empty_like(x_, at::MemoryFormat::Contiguous);
    if (const auto* device = device_kernels(x_))
      device->paired_gate_backward(element_of(x_), gradient.const_data_ptr(), x_.const_data_ptr(),
                                   dx.mutable_data_ptr(), 1, gradient.numel(), gate_, device->stream());
    else
      composed(gradient, dx);
    return {dx};
  }
  void visit_saved(const std::function<void(at::Tensor&)>& visit) override { visit(x_); }
  const char* name() const override { return "paired_gate"; }

 private:
  void composed(const at::Tensor& gradient, const at::Tensor& out) const {
    const GateAndUp in(x_, apart_), to(out, apart_);
    const auto gate = gate_.limit > 0 ? at::clamp_max(in.gate, gate_.limit) : in.gate,
               up = gate_.limit > 0 ? at::clamp(in.up, -gate_.limit, gate_.limit) : in.up;
    const auto share = at::sigmoid(gate * gate_.alpha);
    auto of_gate = gradient * (up + 1) * share * (1 + gate * gate_.alpha * (1 - share));
    auto of_up = gradient * gate * share;
    if (gate_.limit > 0) {  // at a limit itself the gradient passes, as PyTorch's clamp lets it
      of_gate.mul_(in.gate.le(gate_.limit));
      of_up.mul_(in.up.abs().le(gate_.limit));
    }
    to.gate.copy_(of_gate);
    to.up.copy_(of_up);
  }

  at::Tensor x_;
  PairedGate gate_;
  bool apart_;
};

at::Tensor paired_gate(const at::Tensor& x, const PairedGate& gate, bool apart) {
  auto shape = x.sizes().vec();
  shape.back() /= 2;
  at::Tensor input, out;
  {
    NoGraph guard;
    input = x.detach().contiguous();
    if (const auto* device = device_kernels(input)) {
      out = at::empty(shape, input.options());
      device->paired_gate_forward(element_of(input), input.const_data_ptr(), out.mutable_data_ptr(), 1, out.numel(),
                                  gate, device->stream());
    } else {
      auto [held, up] = GateAndUp(input, apart);
      if (gate.limit > 0) {
        held = at::clamp_max(held, gate.limit);
        up = at::clamp(up, -gate.limit, gate.limit);
      }
      out = (up + 1) * held * at::sigmoid(held * gate.alpha);
    }
  }
  if (records({x})) record({out}, {x}, std::make_unique<PairedGateBackward>(input, gate, apart));
  return out;
}

class ActivateBackward : public Backward {
 public:
  ActivateBackward(at::Tensor x, Gate gate) : x_(std::move(x)), gate_(gate) {}
  std::vector<at::Tensor> backward(std::vector<at::Tensor> gradients, const std::vector<bool>&) override {
    if (!gradients[0].defined()) return {at::Tensor()};
    NoGraph guard;
    return {apply_backward(gradients[0], x_, gate_)};
  }
  void visit_saved(const std::function<void(at::Tensor&)>& visit) override { visit(x_); }
  const char* name() const override { return "activate"; }

 private:
  at::Tensor x_;
  Gate gate_;
};

/// x and the parameters, in the type of computation.
struct Xielu {
  explicit Xielu(const at::Tensor& of, const XieluNumbers& numbers)
      : x(of.to(compute_type(of.scalar_type()))),
        beta(numbers.beta->value.to(x.scalar_type())),
        eps(numbers.eps->value.to(x.scalar_type())),
        alpha_p(at::softplus(numbers.alpha_p->value.to(x.scalar_type()))),
        alpha_n(beta + at::softplus(numbers.alpha_n->value.to(x.scalar_type()))),
        positive(x.gt(0)),
        curve(at::expm1(at::minimum(x, eps)) - x) {}
  at::Tensor value() const { return at::where(positive, alpha_p * x * x, curve * alpha_n) + beta * x; }
  at::Tensor slope() const {
    const auto below = at::where(x.lt(eps), at::exp(at::minimum(x, eps)), at::zeros_like(x)) - 1;
    return at::where(positive, 2 * alpha_p * x, below * alpha_n) + beta;
  }

  at::Tensor x, beta, eps, alpha_p, alpha_n, positive, curve;
};

class XieluBackward : public Backward {
 public:
  XieluBackward(at::Tensor x, const XieluNumbers& numbers) : x_(std::move(x)), numbers_(numbers) {}
  std::vector<at::Tensor> backward(std::vector<at::Tensor> gradients, const std::vector<bool>&) override {
    if (!gradients[0].defined()) return {at::Tensor()};
    NoGraph guard;
    const Xielu f(x_, numbers_);
    const auto g = gradients[0].to(f.x.scalar_type());
    const auto through = [&](Parameter& alpha, const at::Tensor& part) {
      const auto slope = at::sigmoid(alpha.value.to(f.x.scalar_type()));
      accumulate(alpha, part.sum().reshape(alpha.shape) * slope);
    };
    through(*numbers_.alpha_p, at::where(f.positive, g * f.x * f.x, at::zeros_like(g)));
    through(*numbers_.alpha_n, at::where(f.positive, at::zeros_like(g), g * f.curve));
    return {(g * f.slope()).to(x_.scalar_type())};
  }
  void visit_saved(const std::function<void(at::Tensor&)>& visit) override { visit(x_); }
  const char* name() const override { return "xielu"; }

 private:
  at::Tensor x_;
  XieluNumbers numbers_;
};

}  // namespace

at::Tensor xielu(const at::Tensor& x, const XieluNumbers& numbers) {
  at::Tensor input, out;
  {
    NoGraph guard;
    input = x.detach();
    out = Xielu(input, numbers).value().to(x.scalar_type());
  }
  if (records({x})) record({out}, {x}, std::make_unique<XieluBackward>(input, numbers));
  return out;
}

at::Tensor gated(const at::Tensor& x, Gate gate) {
  at::Tensor input, out;
  {
    NoGraph guard;
    input = x.detach().contiguous();
    const auto columns = input.size(-1) / 2;
    auto shape = input.sizes().vec();
    shape.back() = columns;
    if (const auto* device = device_kernels(input)) {
      out = at::empty(shape, input.options());
      device->gate_forward(element_of(input), input.const_data_ptr(), out.mutable_data_ptr(),
                           out.numel() / std::max<std::int64_t>(columns, 1), columns, gate, device->stream());
    } else if (has_kernel(input)) {
      out = at::empty(shape, input.options());
      for_type(input.scalar_type(), [&](auto* tag) {
        using T = std::remove_pointer_t<decltype(tag)>;
        const T* in = input.const_data_ptr<T>();
        T* result = out.mutable_data_ptr<T>();
        at::parallel_for(0, out.numel() / std::max<std::int64_t>(columns, 1), kRowsPerTask,
                         [&](std::int64_t begin, std::int64_t end) {
                           gate_kernels<T>().forward(in + begin * 2 * columns, result + begin * columns, end - begin,
                                                     columns, gate);
                         });
      });
    } else {
      out = apply(input.narrow(-1, 0, columns), gate) * input.narrow(-1, columns, columns);
    }
  }
  if (records({x})) record({out}, {x}, std::make_unique<GatedBackward>(input, gate));
  return out;
}

at::Tensor limited(const at::Tensor& x, double limit) {
  const auto width = x.size(-1) / 2;
  const auto parts = split(x, {width, width});
  return at::cat({at::clamp_max(parts[0], limit), at::clamp(parts[1], -limit, limit)}, -1);
}

at::Tensor gated_within(const at::Tensor& x, Gate gate, double limit) {
  const auto width = x.size(-1) / 2;
  const auto parts = split(x, {width, width});
  return at::clamp_max(activate(parts[0], gate), limit) * at::clamp(parts[1], -limit, limit);
}

at::Tensor paired_gate(const at::Tensor& x, const PairedGate& gate) {
  return paired_gate(x, gate, false);
}

at::Tensor shifted_gate(const at::Tensor& x, const PairedGate& gate) {
  if (device_kernels(x) == nullptr) return paired_gate(x, gate, true);
  auto shape = x.sizes().vec();  // the kernels take pairs
  shape.back() /= 2;
  shape.insert(shape.end() - 1, 2);
  return paired_gate(x.reshape(shape).transpose(-1, -2).reshape(x.sizes()), gate, false);
}

at::Tensor activate(const at::Tensor& x, Gate gate) {
  at::Tensor input, out;
  {
    NoGraph guard;
    input = x.detach();
    out = apply(input, gate);
  }
  if (records({x})) record({out}, {x}, std::make_unique<ActivateBackward>(input, gate));
  return out;
}

}  // namespace automodel::ops
