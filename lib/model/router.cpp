#include "model/router.h"

#include <limits>

#include <ATen/TensorOperators.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/topk.h>
#include <ATen/ops/zeros_like.h>

#include "base/error.h"
#include "ops/element_type.h"
#include "ops/graph.h"
#include "ops/linear.h"

namespace automodel::model {

Router::Router(const arch::MixtureOfExperts& moe, const Weights& weights, const std::string& fqn, int layer)
    : moe_(moe),
      layer_(layer),
      weight_(weights.parameter(fqn + ".weight")),
      bias_(weights.parameter(fqn + ".bias")),
      correction_(weights.parameter(fqn + ".e_score_correction_bias")) {
  AUTOMODEL_CHECK(weight_ != nullptr, "no router weight " + fqn);
}

/// The experts of each row by scores without a graph, [n, k].
at::Tensor Router::choose(const at::Tensor& scores) const {
  if (moe_.router != arch::RouterKind::kSigmoidGroups) return std::get<1>(at::topk(scores, moe_.top_k));
  auto choice = correction_ != nullptr ? scores + correction_->value.to(scores.scalar_type()) : scores;
  if (moe_.groups > 1) {
    const auto grouped = choice.view({choice.size(0), moe_.groups, -1});
    const auto best = std::get<0>(at::topk(grouped, std::min<std::int64_t>(2, grouped.size(2)))).sum(-1);
    const auto kept = at::zeros_like(best, best.options().dtype(at::kBool))
                          .scatter_(1, std::get<1>(at::topk(best, moe_.top_groups)), true);
    choice = grouped.masked_fill(kept.unsqueeze(2).logical_not(), -std::numeric_limits<double>::infinity())
                 .view(choice.sizes());
  }
  return std::get<1>(at::topk(choice, moe_.top_k));
}

Routing Router::route(const at::Tensor& x, const at::Tensor& real,
                      const std::shared_ptr<RouterStatistics>& statistics) const {
  const auto type = ops::compute_type(x.scalar_type());
  at::Tensor logits;
  if (moe_.router == arch::RouterKind::kSigmoidGroups)  // the product itself is in float32 or better
    logits = at::matmul(x.to(type), ops::use(*weight_, x).to(type).t());
  else
    logits = ops::linear(x, {weight_}, {bias_}).to(type);
  Routing out;
  at::Tensor scores;
  {
    ops::NoGraph guard;
    scores = moe_.router == arch::RouterKind::kSigmoidGroups ? at::sigmoid(logits.detach()) : logits.detach();
    out.experts = choose(scores);
  }
  if (statistics) logits = balanced(logits, out.experts, real, layer_, statistics);
  switch (moe_.router) {
    case arch::RouterKind::kTopKSoftmax: out.weights = at::softmax(logits.gather(1, out.experts), -1); return out;
    case arch::RouterKind::kSoftmaxTopK: out.weights = at::softmax(logits, -1).gather(1, out.experts); break;
    case arch::RouterKind::kSigmoidGroups: out.weights = at::sigmoid(logits).gather(1, out.experts); break;
  }
  if (moe_.normalize_top_k) {
    const double floor = moe_.router == arch::RouterKind::kSigmoidGroups ? 1e-20 : 0.0;
    out.weights = out.weights / (out.weights.sum(-1, true) + floor);
  }
  if (moe_.scaling != 1) out.weights = out.weights * moe_.scaling;
  return out;
}

}  // namespace automodel::model
