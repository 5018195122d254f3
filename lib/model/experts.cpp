#include "model/experts.h"

#include <array>

#include <ATen/TensorOperators.h>
#include <ATen/ops/sigmoid.h>

#include "base/error.h"
#include "model/blocks.h"
#include "ops/activation.h"

namespace automodel::model {
namespace {

/// Names of an expert's gate, up and down projections.
constexpr std::array<std::array<const char*, 3>, 2> kNames = {{
    {"w1", "w3", "w2"},
    {"gate_proj", "up_proj", "down_proj"},
}};

}  // namespace

Experts::Experts(const arch::ModelSpec& spec, const Weights& weights, const std::string& fqn)
    : gate_(gate_of(spec.activation)), alpha_(spec.moe->swiglu_alpha), limit_(spec.moe->swiglu_limit) {
  up_.stacked = weights.parameter(fqn + ".gate_up_proj");
  if (up_.stacked != nullptr) {
    up_.bias = weights.parameter(fqn + ".gate_up_proj_bias");
    down_.stacked = weights.parameter(fqn + ".down_proj");
    down_.bias = weights.parameter(fqn + ".down_proj_bias");
    return;
  }
  for (int e = 0; e < spec.moe->experts; ++e)
    for (const auto& [gate, up, down] : kNames) {
      const auto find = [&](const char* name) {
        return weights.parameter(fqn + "." + std::to_string(e) + "." + name + ".weight");
      };
      if (find(gate) == nullptr) continue;  // other names, or another rank's
      up_.each.push_back({.weights = {find(gate), find(up)}});
      down_.each.push_back({.weights = {find(down)}});
    }
  AUTOMODEL_CHECK(!up_.each.empty(), "no experts below " + fqn);
}

/// gpt-oss: (up + 1) gate sigmoid(alpha gate), gate at most and up at most so far from 0 as the limit.
at::Tensor Experts::clamped(const at::Tensor& wide) const {
  const auto pairs = wide.view({wide.size(0), wide.size(1) / 2, 2});  // there may be no rows
  auto gate = pairs.select(2, 0), up = pairs.select(2, 1);
  if (limit_ > 0) {
    gate = gate.clamp(std::nullopt, limit_);
    up = up.clamp(-limit_, limit_);
  }
  return (up + 1) * gate * at::sigmoid(gate * alpha_);
}

at::Tensor Experts::forward(const at::Tensor& x, std::span<const std::int64_t> rows) const {
  const auto wide = ops::grouped_linear(x, up_, rows);
  return ops::grouped_linear(up_.stacked != nullptr ? clamped(wide) : ops::gated(wide, gate_), down_, rows);
}

}  // namespace automodel::model
