#include "model/experts.h"

#include <string>

#include <ATen/TensorOperators.h>

#include "base/error.h"
#include "ops/activation.h"

namespace automodel::model {
using arch::Part;

Experts::Experts(const BlockContext& context, int layer)
    : gate_(gate_of(context.spec.activation)),
      gated_(context.spec.gated_mlp),
      paired_(context.spec.moe->paired_gates),
      shifted_(context.spec.moe->shifted_gates),
      alpha_(context.spec.moe->swiglu_alpha),
      limit_(context.spec.moe->swiglu_limit),
      end_limit_(context.spec.expert_limit(layer)) {
  const LayerWeights weights(context, layer);
  if (weights.has(Part::kExpertGateUp)) {
    up_.stacked = weights.weight(Part::kExpertGateUp);
    up_.bias = context.weights.parameter(weights.fqn(Part::kExpertGateUp) + "_bias");
    down_.stacked = weights.weight(Part::kExpertDown);
    down_.bias = context.weights.parameter(weights.fqn(Part::kExpertDown) + "_bias");
    return;
  }
  for (int e = 0; e < context.spec.moe->experts; ++e) {
    const auto find = [&](Part part) {
      auto name = weights.fqn(part);
      name.replace(name.find("{}"), 2, std::to_string(e));
      return context.weights.parameter(name + ".weight");
    };
    if (find(Part::kExpertUp) == nullptr) continue;  // on another rank
    if (gated_)
      up_.each.push_back({.weights = {find(Part::kExpertGate), find(Part::kExpertUp)}});
    else
      up_.each.push_back({.weights = {find(Part::kExpertUp)}});
    down_.each.push_back({.weights = {find(Part::kExpertDown)}});
    adapt(context.weights, context.adapters, up_.each.back());
    adapt(context.weights, context.adapters, down_.each.back());
  }
  AUTOMODEL_CHECK(!up_.each.empty(), "no experts in layer " + std::to_string(layer));
}

at::Tensor Experts::forward(const at::Tensor& x, const ops::GroupRows& rows) const {
  const auto wide = ops::grouped_linear(x, up_, rows);
  const auto activated = paired_          ? ops::paired_gate(wide, {alpha_, limit_})
                         : shifted_       ? ops::shifted_gate(wide, {alpha_, limit_})
                         : end_limit_ > 0 ? ops::gated_within(wide, gate_, end_limit_)
                         : gated_         ? ops::gated(limit_ > 0 ? ops::limited(wide, limit_) : wide, gate_)
                                          : ops::activate(wide, gate_);
  return ops::grouped_linear(activated, down_, rows);
}

}  // namespace automodel::model
