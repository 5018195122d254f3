#include "model/head_norm.h"

#include <string>

#include <ATen/TensorOperators.h>
#include <ATen/ops/stack.h>

#include "base/error.h"
#include "ops/norm.h"

namespace automodel::model {

using Span = arch::HeadNorm::Span;

HeadNorm::HeadNorm(const BlockContext& context, const LayerWeights& weights, arch::Part part, std::int64_t heads,
                   const ops::Parameter& projection)
    : tensor_(context.seams.tensor),
      norm_(*context.spec.head_norm),
      weight_(weights.weight(part)),
      bias_(weights.bias(part)),
      projection_(&projection),
      heads_(heads),
      eps_(context.spec.norm_eps),
      offset_(norm_.kind == arch::NormKind::kRmsNorm && context.spec.norm_scale == arch::NormScale::kOnePlusInFloat
                  ? 1.0
                  : 0.0) {
  if (weight_ != nullptr || !norm_.weight) return;
  const auto name = weights.fqn(part);
  const auto at = name.find("{}");
  AUTOMODEL_CHECK(at != std::string::npos && norm_.span == Span::kEachHead, "no weight " + name);
  const auto here = tensor_->local(heads, projection), first = heads > here ? tensor_->rank() * here : 0;
  for (auto head = first; head < first + here; ++head)
    each_.push_back(
        context.weights.parameter(name.substr(0, at) + std::to_string(head) + name.substr(at + 2) + ".weight"));
}

at::Tensor HeadNorm::operator()(const at::Tensor& x) {
  if (!norm_.weight) return unweighted_(x, eps_);
  if (norm_.span == Span::kAllHeads)
    return tensor_->norm_of_heads(x.flatten(2), *weight_, *projection_, heads_ * x.size(3), eps_, offset_)
        .view(x.sizes());
  if (norm_.kind == arch::NormKind::kRmsNorm) return ops::rms_norm(x, *weight_, eps_, offset_);
  if (norm_.span == Span::kHead) return ops::layer_norm(x, weight_, bias_, eps_, offset_);
  const auto normal = ops::layer_norm(x, nullptr, nullptr, eps_);
  if (weight_ != nullptr) return ops::scaled_by(normal, *weight_);
  std::vector<at::Tensor> scales;
  for (auto* each : each_) scales.push_back(ops::use(*each, x));
  return normal * at::stack(scales);
}

}  // namespace automodel::model
