// The router: which experts a token goes to, and with what weights.
#pragma once

#include <memory>
#include <string>

#include <ATen/core/Tensor.h>

#include "arch/model_spec.h"
#include "model/blocks.h"
#include "model/router_statistics.h"

namespace automodel::model {

struct Routing {
  at::Tensor experts;  ///< int64 [n, k]
  at::Tensor weights;  ///< [n, k] in float32 or better; part of the graph
};

/// Numbers of experts from what a table has in memory (base/expert_number.h), of the same type.
at::Tensor numbers_of_experts(const at::Tensor& stored);

/// The router of a layer: scores, the choice of experts by score, and the weights of the chosen ones
/// (arch::MixtureOfExperts). Ties go to the lower index, as far as ATen's topk does so.
class Router {
 public:
  Router(const BlockContext& context, int layer);

  /// x [n, width]: what the router sees, or the residual stream where it normalises its own input; `real` [n] as in
  /// balanced(). Records auxiliary-loss statistics and loads in the microbatch if it collects them.
  Routing route(const at::Tensor& x, const at::Tensor& real, const Microbatch& microbatch) const;

 private:
  at::Tensor scores(const at::Tensor& logits) const;
  at::Tensor choose(const at::Tensor& scores) const;
  at::Tensor looked_up(const at::Tensor& ids) const;
  at::Tensor weigh_in_turn(const at::Tensor& logits, const at::Tensor& experts) const;
  at::Tensor weigh(const at::Tensor& logits, const at::Tensor& experts) const;

  const arch::MixtureOfExperts& moe_;
  int layer_;
  ops::Parameter *weight_, *bias_, *correction_, *input_scale_, *expert_scale_, *table_;
  double eps_;
};

}  // namespace automodel::model
