#include "ops/norm.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/rsqrt.h>

#include "model/blocks.h"
#include "ops/element_type.h"
#include "ops/graph.h"

namespace automodel::model {

at::Tensor unit_rms(const at::Tensor& x, double eps) {
  const auto wide = x.to(ops::compute_type(x.scalar_type()));
  return (wide * at::rsqrt((wide * wide).mean(-1, true) + eps)).to(x.scalar_type());
}

at::Tensor UnitRms::operator()(const at::Tensor& x, double eps) {
  if (!ones_.value.defined()) {
    const ops::NoGraph guard;
    ones_.frozen = true;
    ones_.shape = {x.size(-1)};
    ones_.value = at::ones({x.size(-1)}, x.options().requires_grad(false));
  }
  return ops::rms_norm(x, ones_, eps);
}

at::Tensor copied(const ops::Parameter& parameter, at::ScalarType type) {
  return parameter.value.to(type, false, true);
}

Norm::Norm(const BlockContext& context, const std::string& fqn, NormPlace place)
    : present_(true),
      kind_(context.spec.norm),
      weight_(context.weights.parameter(fqn + ".weight")),
      bias_(context.weights.parameter(fqn + ".bias")),
      eps_(context.spec.norm_eps),
      offset_(context.spec.norm_scale == arch::NormScale::kOnePlusInFloat ? 1.0 : 0.0) {
  if (place == NormPlace::kBranch && context.spec.branch_norm_eps > 0) eps_ = context.spec.branch_norm_eps;
  if (place == NormPlace::kEnd && context.spec.plain_end_norm) offset_ = 0;
}

at::Tensor Norm::operator()(const at::Tensor& x) const {
  return kind_ == arch::NormKind::kLayerNorm ? ops::layer_norm(x, weight_, bias_, eps_, offset_)
                                             : ops::rms_norm(x, *weight_, eps_, offset_);
}

std::pair<at::Tensor, at::Tensor> Norm::after_adding(const at::Tensor& x, const at::Tensor& delta) const {
  if (!delta.defined()) return {x, (*this)(x)};
  return kind_ == arch::NormKind::kLayerNorm ? ops::add_layer_norm(x, delta, weight_, bias_, eps_, offset_)
                                             : ops::add_rms_norm(x, delta, *weight_, eps_, offset_);
}

}  // namespace automodel::model
