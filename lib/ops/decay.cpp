#include "ops/decay.h"

#include <limits>
#include <memory>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/softplus.h>

#include "ops/element_type.h"
#include "ops/graph.h"

namespace automodel::ops {
namespace {

/// x + bias, in the type of computation.
at::Tensor biased(const at::Tensor& x, const ParameterRows& bias) {
  const auto type = compute_type(x.scalar_type());
  return x.to(type) + bias.value().to(type).view(x.sizes().slice(2));
}
/// exp(rate) of every head, shaped to broadcast over [batch, tokens, heads(, width)].
at::Tensor rates(const at::Tensor& x, const ParameterRows& rate) {
  const auto factor = rate.value().reshape({-1}).to(compute_type(x.scalar_type())).exp();
  return x.dim() == 4 ? factor.unsqueeze(1) : factor;
}
/// The sum over batch and tokens, and over each head's channels if there are any.
at::Tensor of_heads(const at::Tensor& gradient) {
  return gradient.dim() == 4 ? gradient.sum(at::IntArrayRef{0, 1, 3}) : gradient.flatten(0, 1).sum(0);
}

class DecayGateBackward : public Backward {
 public:
  DecayGateBackward(at::Tensor x, DecayGate gate) : x_(std::move(x)), gate_(gate) {}
  std::vector<at::Tensor> backward(std::vector<at::Tensor> gradients, const std::vector<bool>&) override {
    if (!gradients[0].defined()) return {at::Tensor()};
    NoGraph guard;
    const auto& g = gradients[0];
    const auto sum = biased(x_, gate_.bias), factor = rates(x_, gate_.rate);
    at::Tensor dx, drate;
    if (gate_.lower_bound) {
      const auto s = at::sigmoid(sum * factor);
      const auto inner = g * *gate_.lower_bound * s * (1 - s);  // gradient of exp(rate) (x + bias)
      dx = inner * factor;
      drate = inner * sum * factor;
    } else {
      const auto part = g * factor;
      dx = -(part * at::sigmoid(sum));
      drate = -(part * at::softplus(sum));
    }
    gate_.rate.accumulate(of_heads(drate));
    gate_.bias.accumulate(dx.flatten(0, 1).sum(0).contiguous());
    return {dx.to(x_.scalar_type())};
  }
  void visit_saved(const std::function<void(at::Tensor&)>& visit) override { visit(x_); }
  const char* name() const override { return "decay_gate"; }

 private:
  at::Tensor x_;
  DecayGate gate_;
};

class StepGateBackward : public Backward {
 public:
  StepGateBackward(at::Tensor x, StepGate gate) : x_(std::move(x)), gate_(gate) {}
  std::vector<at::Tensor> backward(std::vector<at::Tensor> gradients, const std::vector<bool>&) override {
    NoGraph guard;
    const auto sum = biased(x_, gate_.bias), factor = rates(x_, gate_.rate);
    const auto steps = at::softplus(sum);
    auto dsteps = gradients[0];
    if (gradients[1].defined()) {
      const auto part = gradients[1] * factor;
      gate_.rate.accumulate(of_heads(-(part * clamped(steps, gate_))));
      dsteps = dsteps.defined() ? dsteps - part : -part;
    }
    if (!dsteps.defined()) return {at::Tensor()};
    auto inside = steps.ge(gate_.least);
    if (gate_.most > 0) inside = inside.logical_and(steps.le(gate_.most));
    const auto dx = dsteps * inside * at::sigmoid(sum);
    gate_.bias.accumulate(dx.flatten(0, 1).sum(0));
    return {dx.to(x_.scalar_type())};
  }
  void visit_saved(const std::function<void(at::Tensor&)>& visit) override { visit(x_); }
  const char* name() const override { return "step_gate"; }

  static at::Tensor clamped(const at::Tensor& steps, const StepGate& gate) {
    return steps.clamp(gate.least, gate.most > 0 ? gate.most : std::numeric_limits<double>::infinity());
  }

 private:
  at::Tensor x_;
  StepGate gate_;
};

}  // namespace

at::Tensor decay_gate(const at::Tensor& x, const DecayGate& gate) {
  at::Tensor kept, out;
  {
    NoGraph guard;
    kept = x.detach();
    const auto sum = biased(kept, gate.bias), factor = rates(kept, gate.rate);
    out = gate.lower_bound ? at::sigmoid(sum * factor) * *gate.lower_bound : -(at::softplus(sum) * factor);
  }
  if (records({x})) record({out}, {x}, std::make_unique<DecayGateBackward>(kept, gate));
  return out;
}

std::pair<at::Tensor, at::Tensor> step_gate(const at::Tensor& x, const StepGate& gate) {
  at::Tensor kept, steps, decays;
  {
    NoGraph guard;
    kept = x.detach();
    steps = StepGateBackward::clamped(at::softplus(biased(kept, gate.bias)), gate);
    decays = -(steps * rates(kept, gate.rate));
  }
  if (records({x})) record({steps, decays}, {x}, std::make_unique<StepGateBackward>(kept, gate));
  return {steps, decays};
}

}  // namespace automodel::ops
