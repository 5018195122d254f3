#include "ops/gated_norm.h"

#include <memory>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/rsqrt.h>
#include <ATen/ops/sigmoid.h>

#include "ops/element_type.h"
#include "ops/graph.h"

namespace automodel::ops {
namespace {

/// act(gate) and its slope.
struct Act {
  at::Tensor value, slope;
  Act(const at::Tensor& gate, GateShape shape, bool with_slope) {
    const auto s = at::sigmoid(gate);
    if (shape == GateShape::kSigmoid) {
      value = s;
      if (with_slope) slope = s * (1 - s);
    } else {
      value = gate * s;
      if (with_slope) slope = s * (1 + gate * (1 - s));
    }
  }
};

/// The weight as [groups or 1, width].
at::Tensor weight_of(const GatedNorm& norm, const at::Tensor& x) {
  return norm.weight.value().reshape({-1, x.size(3)}).to(x.scalar_type());
}

at::Tensor inverse_of(const at::Tensor& z, double eps) {
  return at::rsqrt(z.square().mean(-1, true) + eps);
}

at::Tensor forward(const at::Tensor& x, const at::Tensor& gate, const GatedNorm& norm) {
  const auto type = compute_type(x.scalar_type());
  const auto wide = x.to(type), act = Act(gate.to(type), norm.shape, false).value;
  if (!norm.weight) return (wide * act).to(x.scalar_type());
  const bool first = norm.order == GateOrder::kGateFirst;
  const auto z = first ? wide * act : wide;
  auto y = z * inverse_of(z, norm.eps) * weight_of(norm, z);
  if (!first) y.mul_(act);
  return y.to(x.scalar_type());
}

class GatedNormBackward : public Backward {
 public:
  GatedNormBackward(at::Tensor x, at::Tensor gate, GatedNorm norm)
      : x_(std::move(x)), gate_(std::move(gate)), norm_(norm) {}
  std::vector<at::Tensor> backward(std::vector<at::Tensor> gradients, const std::vector<bool>&) override {
    if (!gradients[0].defined()) return std::vector<at::Tensor>(2);
    NoGraph guard;
    const auto type = compute_type(x_.scalar_type());
    const auto x = x_.to(type), dy = gradients[0].to(type);
    const Act act(gate_.to(type), norm_.shape, true);
    at::Tensor dx, dact;
    if (!norm_.weight) {
      dx = dy * act.value;
      dact = dy * x;
    } else if (norm_.order == GateOrder::kGateFirst) {
      const auto dz = through_norm(x * act.value, dy, nullptr);
      dx = dz * act.value;
      dact = dz * x;
    } else {
      at::Tensor normal;
      dx = through_norm(x, dy * act.value, &normal);
      dact = dy * normal;
    }
    return {dx.to(x_.scalar_type()), (dact * act.slope).to(gate_.scalar_type())};
  }
  void visit_saved(const std::function<void(at::Tensor&)>& visit) override {
    visit(x_);
    visit(gate_);
  }
  const char* name() const override { return "gated_norm"; }

 private:
  /// Gradient of z from that of weight z / rms(z), whose value goes to `result` unless null; accumulates the weight's
  /// gradient.
  at::Tensor through_norm(const at::Tensor& z, const at::Tensor& dy, at::Tensor* result) const {
    const auto inverse = inverse_of(z, norm_.eps), weight = weight_of(norm_, z);
    const auto normal = z * inverse;
    if (result != nullptr) *result = normal * weight;
    const auto by_group = (dy * normal).flatten(0, 1).sum(0);
    norm_.weight.accumulate(weight.size(0) == 1 ? by_group.sum(0) : by_group);
    const auto scaled = dy * weight;
    return (scaled - normal * (scaled * normal).mean(-1, true)).mul_(inverse);
  }

  at::Tensor x_, gate_;
  GatedNorm norm_;
};

}  // namespace

at::Tensor gated_norm(const at::Tensor& x, const at::Tensor& gate, const GatedNorm& norm) {
  at::Tensor kept_x, kept_gate, y;
  {
    NoGraph guard;
    kept_x = x.detach();
    kept_gate = gate.detach();
    y = forward(kept_x, kept_gate, norm);
  }
  if (records({x, gate})) record({y}, {x, gate}, std::make_unique<GatedNormBackward>(kept_x, kept_gate, norm));
  return y;
}

}  // namespace automodel::ops
